package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"minibroker/conformance/cases"
)

const strictLimit = 10

var ackStatuses = map[string]kgo.AckStatus{
	"ACCEPT": kgo.AckAccept, "RELEASE": kgo.AckRelease, "REJECT": kgo.AckReject, "RENEW": kgo.AckRenew,
}

// shareCommand is a line of stdin; ../sharing.py has the rules.
type shareCommand struct {
	Do, Name, Bootstrap, Group, Topic string
	Explicit, Strict                  bool
	Seconds                           float64
	Types                             map[string]string
}

// sharer is a share consumer, with the records of its last poll.
type sharer struct {
	client *kgo.Client
	polled map[string]*kgo.Record

	mu      sync.Mutex
	refused error // the first error of what was acknowledged since the last commit
}

// sharing keeps share consumers, and does what the lines of stdin say.
func sharing(stdin io.Reader) error {
	sharers := map[string]*sharer{}
	lines := bufio.NewScanner(stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var asked shareCommand
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			return err
		}
		answer, err := asked.run(sharers)
		if err != nil {
			answer = map[string]any{"failure": err.Error()}
		}
		if err := json.NewEncoder(os.Stdout).Encode(answer); err != nil {
			return err
		}
	}
	return lines.Err()
}

func (asked shareCommand) run(sharers map[string]*sharer) (map[string]any, error) {
	if asked.Do == "open" {
		opened, err := asked.open()
		sharers[asked.Name] = opened
		return map[string]any{}, err
	}
	consumer := sharers[asked.Name]
	switch asked.Do {
	case "poll":
		return consumer.poll(asked.Seconds)
	case "say":
		for offset, kind := range asked.Types {
			consumer.polled[offset].Ack(ackStatuses[kind])
		}
		return map[string]any{}, nil
	case "commit":
		return consumer.commit()
	case "close":
		consumer.client.Close()
		return map[string]any{}, nil
	}
	return nil, fmt.Errorf("unknown: %q", asked.Do)
}

func (asked shareCommand) open() (*sharer, error) {
	opened := &sharer{polled: map[string]*kgo.Record{}}
	options := []kgo.Opt{
		kgo.SeedBrokers(asked.Bootstrap),
		kgo.ShareGroup(asked.Group),
		kgo.ConsumeTopics(asked.Topic),
		kgo.ShareAckCallback(opened.acknowledged),
		kgo.FetchMaxWait(500 * time.Millisecond),
	}
	if asked.Strict {
		options = append(options, kgo.ShareMaxRecords(strictLimit), kgo.ShareMaxRecordsStrict())
	}
	var err error
	opened.client, err = kgo.NewClient(options...)
	return opened, err
}

func (consumer *sharer) acknowledged(_ *kgo.Client, results kgo.ShareAckResults) {
	consumer.mu.Lock()
	defer consumer.mu.Unlock()
	if consumer.refused == nil {
		consumer.refused = results.Error()
	}
}

func (consumer *sharer) poll(seconds float64) (map[string]any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(seconds*float64(time.Second)))
	defer cancel()
	fetches := consumer.client.PollFetches(ctx)
	for _, failed := range fetches.Errors() {
		if !errors.Is(failed.Err, context.DeadlineExceeded) {
			return nil, failed.Err
		}
	}
	records := []any{}
	fetches.EachRecord(func(record *kgo.Record) {
		consumer.polled[strconv.FormatInt(record.Offset, 10)] = record
		records = append(records, []any{record.Offset, string(record.Value), record.DeliveryCount()})
	})
	return map[string]any{"records": records}, nil
}

// commit flushes what was said. In franz-go the next poll accepts what nobody has acknowledged.
func (consumer *sharer) commit() (map[string]any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), cases.Patience)
	defer cancel()
	if err := consumer.client.FlushAcks(ctx); err != nil {
		return nil, err
	}
	consumer.mu.Lock()
	defer consumer.mu.Unlock()
	refused := consumer.refused
	consumer.refused = nil
	var known *kerr.Error
	if errors.As(refused, &known) {
		return map[string]any{"error": known.Message}, nil
	}
	return map[string]any{"error": nil}, refused
}
