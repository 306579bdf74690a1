package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A line of the specification. Bytes are base64 there; nil is null.
type specified struct {
	Partition int32    `json:"partition"`
	Timestamp *int64   `json:"timestamp"` // ms; nil is "whatever the writer set"
	Key       []byte   `json:"key"`
	Value     []byte   `json:"value"`
	Headers   []header `json:"headers"`
}

type header kgo.RecordHeader

// A header is [name, value].
func (h *header) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&h.Key, &h.Value})
}

func readSpec(file string) ([]specified, error) {
	in, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	var records []specified
	decoder := json.NewDecoder(bufio.NewReader(in))
	for decoder.More() {
		var record specified
		if err := decoder.Decode(&record); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		records = append(records, record)
	}
	return records, nil
}

func (s specified) toProduce() *kgo.Record {
	record := &kgo.Record{Partition: s.Partition, Key: s.Key, Value: s.Value}
	for _, each := range s.Headers {
		record.Headers = append(record.Headers, kgo.RecordHeader(each))
	}
	if s.Timestamp != nil {
		record.Timestamp = time.UnixMilli(*s.Timestamp)
	}
	return record
}

// What differs between what was specified and what came, in words; empty if nothing.
func (s specified) difference(got *kgo.Record) string {
	if s.Timestamp != nil && *s.Timestamp != got.Timestamp.UnixMilli() {
		return fmt.Sprintf("timestamp %d, expected %d", got.Timestamp.UnixMilli(), *s.Timestamp)
	}
	if kind := got.Attrs.TimestampType(); kind != 0 {
		return fmt.Sprintf("timestamp type %d, expected 0", kind)
	}
	if !same(s.Key, got.Key) {
		return fmt.Sprintf("key %s, expected %s", shown(got.Key), shown(s.Key))
	}
	if !same(s.Value, got.Value) {
		return fmt.Sprintf("value %s, expected %s", shown(got.Value), shown(s.Value))
	}
	if len(s.Headers) != len(got.Headers) {
		return fmt.Sprintf("%d headers, expected %d", len(got.Headers), len(s.Headers))
	}
	for place, each := range s.Headers {
		if came := got.Headers[place]; came.Key != each.Key || !same(each.Value, came.Value) {
			return fmt.Sprintf("header %q=%s, expected %q=%s", came.Key, shown(came.Value), each.Key, shown(each.Value))
		}
	}
	return ""
}

// Equal, with null and empty apart.
func same(a, b []byte) bool {
	return (a == nil) == (b == nil) && bytes.Equal(a, b)
}

func shown(data []byte) string {
	if data == nil {
		return "null"
	}
	return fmt.Sprintf("%q (%d bytes)", data[:min(len(data), 40)], len(data))
}
