package main

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const copied = 40

// transact copies a topic exactly once, with every other transaction aborted at first, and is fenced in the end.
func transact(ctx context.Context, bootstrap, prefix string) error {
	source, target, id := prefix+"-source", prefix+"-target", prefix+"-copier"
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		return err
	}
	defer client.Close()
	for _, name := range []string{source, target} {
		if _, err := kadm.NewClient(client).CreateTopic(ctx, 1, 1, nil, name); err != nil {
			return err
		}
	}
	for number := 0; number < copied; number++ {
		record := &kgo.Record{Topic: source, Value: []byte(fmt.Sprint(number))}
		if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
			return err
		}
	}
	aborted, err := copyAll(ctx, bootstrap, source, target, id)
	if err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	if err := checkCopy(ctx, bootstrap, target); err != nil {
		return err
	}
	if err := beFenced(ctx, bootstrap, target, id); err != nil {
		return err
	}
	fmt.Printf("franz-go: copied %d records once, %d transactions aborted\n", copied, aborted)
	return nil
}

func copyAll(ctx context.Context, bootstrap, source, target, id string) (int, error) {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(bootstrap),
		kgo.TransactionalID(id),
		kgo.ConsumerGroup(id),
		kgo.ConsumeTopics(source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.DefaultProduceTopic(target),
	)
	if err != nil {
		return 0, err
	}
	defer session.Close()
	aborted, seen := 0, 0
	for abort := true; seen < copied; abort = !abort {
		fetches := session.PollRecords(ctx, 7)
		if err := fetches.Err(); err != nil {
			return aborted, err
		}
		if err := session.Begin(); err != nil {
			return aborted, err
		}
		count := 0
		for _, record := range fetches.Records() {
			session.Produce(ctx, kgo.StringRecord("copy of "+string(record.Value)), func(_ *kgo.Record, failure error) {
				if failure != nil {
					fmt.Println("produce:", failure)
				}
			})
			count++
		}
		if err := session.Client().Flush(ctx); err != nil {
			return aborted, err
		}
		committed, err := session.End(ctx, kgo.TransactionEndTry(!abort))
		if err != nil {
			return aborted, err
		}
		if committed {
			seen += count
		} else {
			aborted++
		}
	}
	return aborted, nil
}

func checkCopy(ctx context.Context, bootstrap, target string) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumeTopics(target),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	for number := 0; number < copied; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		for _, record := range fetches.Records() {
			if expected := fmt.Sprintf("copy of %d", number); string(record.Value) != expected {
				return fmt.Errorf("%q instead of %q", record.Value, expected)
			}
			number++
		}
	}
	return nil
}

func beFenced(ctx context.Context, bootstrap, target, id string) error {
	older, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.TransactionalID(id), kgo.DefaultProduceTopic(target))
	if err != nil {
		return err
	}
	defer older.Close()
	newer, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.TransactionalID(id), kgo.DefaultProduceTopic(target))
	if err != nil {
		return err
	}
	defer newer.Close()
	for _, client := range []*kgo.Client{older, newer} {
		if err := client.BeginTransaction(); err != nil {
			return err
		}
		if err := client.ProduceSync(ctx, kgo.StringRecord("of one of two")).FirstErr(); err != nil {
			return err
		}
	}
	if err := newer.EndTransaction(ctx, kgo.TryCommit); err != nil {
		return err
	}
	if err := older.EndTransaction(ctx, kgo.TryCommit); err == nil {
		return fmt.Errorf("a producer that was fenced has committed")
	}
	return nil
}
