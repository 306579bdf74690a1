// Package billing reads orders, and writes an invoice for each.
package billing

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type order struct {
	ID         int `json:"id"`
	Pieces     int `json:"pieces"`
	PriceCents int `json:"price_cents"`
}

type invoice struct {
	Order int `json:"order"`
	Cents int `json:"cents"`
}

// WriteInvoices writes an invoice for each of the next count orders.
func WriteInvoices(ctx context.Context, servers []string, count int) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(servers...),
		kgo.ConsumerGroup("billing"),
		kgo.ConsumeTopics("orders"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.AllowAutoTopicCreation(),
		kgo.MetadataMinAge(250*time.Millisecond), // how long it waits before it looks for a leader again
	)
	if err != nil {
		return err
	}
	defer client.Close()
	for done := 0; done < count; {
		fetches := client.PollRecords(ctx, count-done)
		if err := fetches.Err(); err != nil {
			return err
		}
		for _, record := range fetches.Records() {
			if err := write(ctx, client, record); err != nil {
				return err
			}
			done++
		}
	}
	return nil
}

func write(ctx context.Context, client *kgo.Client, record *kgo.Record) error {
	var ordered order
	if err := json.Unmarshal(record.Value, &ordered); err != nil {
		return err
	}
	value, err := json.Marshal(invoice{ordered.ID, ordered.Pieces * ordered.PriceCents})
	if err != nil {
		return err
	}
	written := &kgo.Record{Topic: "invoices", Key: []byte(strconv.Itoa(ordered.ID)), Value: value}
	if err := client.ProduceSync(ctx, written).FirstErr(); err != nil {
		return err
	}
	return client.CommitRecords(ctx, record)
}
