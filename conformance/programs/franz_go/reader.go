package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

type place struct {
	topic     string
	partition int32
}

type reader struct {
	expected map[place][]specified
	seen     map[place]int64
	missing  int
}

func newReader(prefix string, records []specified) *reader {
	reader := &reader{map[place][]specified{}, map[place]int64{}, len(records) * len(topics)}
	for _, topic := range topics {
		for _, record := range records {
			where := place{prefix + "-" + topic.name, record.Partition}
			reader.expected[where] = append(reader.expected[where], record)
		}
	}
	return reader
}

func (r *reader) starts() map[string]map[int32]kgo.Offset {
	starts := map[string]map[int32]kgo.Offset{}
	for where := range r.expected {
		if starts[where.topic] == nil {
			starts[where.topic] = map[int32]kgo.Offset{}
		}
		starts[where.topic][where.partition] = kgo.NewOffset().AtStart()
	}
	return starts
}

// Reads until every record came; the first difference is an error.
func (r *reader) read(ctx context.Context, consumer *kgo.Client) error {
	for r.missing > 0 {
		fetches := consumer.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("%d records did not come: %w", r.missing, err)
		}
		for records := fetches.RecordIter(); !records.Done(); {
			if err := r.compare(records.Next()); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *reader) compare(record *kgo.Record) error {
	where := place{record.Topic, record.Partition}
	offset := r.seen[where]
	r.seen[where]++
	r.missing--
	if record.Offset != offset || offset >= int64(len(r.expected[where])) {
		return fmt.Errorf("%v: offset %d, %d was expected", where, record.Offset, offset)
	}
	if difference := r.expected[where][offset].difference(record); difference != "" {
		return fmt.Errorf("%v offset %d: %s", where, offset, difference)
	}
	return nil
}

func (r *reader) compareEnds(ctx context.Context, admin *kadm.Client) error {
	names := map[string]bool{}
	for where := range r.expected {
		names[where.topic] = true
	}
	for name := range names {
		starts, err := admin.ListStartOffsets(ctx, name)
		if err != nil {
			return err
		}
		ends, err := admin.ListEndOffsets(ctx, name)
		if err != nil {
			return err
		}
		for partition := range int32(partitions) {
			start, _ := starts.Lookup(name, partition)
			end, _ := ends.Lookup(name, partition)
			count := int64(len(r.expected[place{name, partition}]))
			if err := errors.Join(start.Err, end.Err); err != nil || start.Offset != 0 || end.Offset != count {
				return fmt.Errorf("%s-%d: offsets %d to %d, expected 0 to %d: %v", name, partition, start.Offset, end.Offset, count, err)
			}
		}
	}
	return nil
}
