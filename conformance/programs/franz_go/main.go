// franz-go: writes or reads the records of a specification, or exercises the admin API or transactions, or belongs to a
// group, or logs in, or belongs to share groups.
//
//	franz-go write|read BOOTSTRAP [PREFIX SPEC]...
//	franz-go admin|transact BOOTSTRAP PREFIX
//	franz-go member BOOTSTRAP GROUP TOPIC ASSIGNOR [INSTANCE]
//	franz-go secured
//	franz-go sharing
//
// Exits 0 and prints one line, or prints what differed and exits 1.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	patience   = 60 * time.Second
	partitions = 3
	largest    = 1_048_588 // max.message.bytes as it is by default
)

type topic struct {
	name  string
	codec kgo.CompressionCodec
	// The last topic is written with acks=1 and without idempotence, the others with both.
	plain bool
}

var topics = []topic{
	{"none", kgo.NoCompression(), false},
	{"gzip", kgo.GzipCompression(), false},
	{"snappy", kgo.SnappyCompression(), false},
	{"lz4", kgo.Lz4Compression(), false},
	{"zstd", kgo.ZstdCompression(), false},
	{"plain", kgo.NoCompression(), true},
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 3 && args[0] == "admin" {
		return administer(ctx, args[1], args[2])
	}
	if len(args) == 3 && args[0] == "transact" {
		return transact(ctx, args[1], args[2])
	}
	if len(args) >= 5 && args[0] == "member" {
		return belong(args[1], args[2], args[3], args[4], args[5:])
	}
	if len(args) == 1 && args[0] == "secured" {
		return secured(os.Stdin)
	}
	if len(args) == 1 && args[0] == "sharing" {
		return sharing(os.Stdin)
	}
	if len(args) < 4 || len(args)%2 != 0 {
		return fmt.Errorf("usage: franz-go write|read BOOTSTRAP [PREFIX SPEC]..., or admin|transact BOOTSTRAP PREFIX, or member")
	}
	for place := 2; place < len(args); place += 2 {
		records, err := readSpec(args[place+1])
		if err != nil {
			return err
		}
		writeOrRead := readAll
		if args[0] == "write" {
			writeOrRead = writeAll
		}
		if err := writeOrRead(ctx, args[1], args[place], records); err != nil {
			return err
		}
	}
	return nil
}

func writeAll(ctx context.Context, bootstrap, prefix string, records []specified) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.MetadataMinAge(50*time.Millisecond))
	if err != nil {
		return err
	}
	defer client.Close()
	forever := "-1"
	for _, topic := range topics {
		name := prefix + "-" + topic.name
		configs := map[string]*string{"retention.ms": &forever}
		if err := create(ctx, kadm.NewClient(client), configs, name); err != nil {
			return fmt.Errorf("create %s: %w", name, err)
		}
		if err := write(ctx, bootstrap, name, topic, records); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	fmt.Printf("franz-go: wrote %d records to each of %d topics\n", len(records), len(topics))
	return nil
}

// Kafka's brokers learn of a topic after its controller has answered: waits for them.
func create(ctx context.Context, admin *kadm.Client, configs map[string]*string, name string) error {
	if _, err := admin.CreateTopic(ctx, partitions, 1, configs, name); err != nil {
		return err
	}
	for {
		ends, err := admin.ListEndOffsets(ctx, name)
		if err == nil {
			err = ends.Error()
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func write(ctx context.Context, bootstrap, name string, topic topic, records []specified) error {
	options := []kgo.Opt{
		kgo.SeedBrokers(bootstrap),
		kgo.DefaultProduceTopic(name),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(topic.codec),
		kgo.ProducerBatchMaxBytes(largest),
		kgo.ProducerLinger(20 * time.Millisecond),
	}
	if topic.plain {
		options = append(options, kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck()))
	}
	producer, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer producer.Close()
	produced := make([]*kgo.Record, len(records))
	for place, record := range records {
		produced[place] = record.toProduce()
	}
	return producer.ProduceSync(ctx, produced...).FirstErr()
}

func readAll(ctx context.Context, bootstrap, prefix string, records []specified) error {
	reader := newReader(prefix, records)
	consumer, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ConsumePartitions(reader.starts()))
	if err != nil {
		return err
	}
	defer consumer.Close()
	if err := reader.read(ctx, consumer); err != nil {
		return err
	}
	if err := reader.compareEnds(ctx, kadm.NewClient(consumer)); err != nil {
		return err
	}
	fmt.Printf("franz-go: read %d records from each of %d topics\n", len(records), len(topics))
	return nil
}
