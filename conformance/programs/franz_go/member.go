package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kgo"
)

const clockMonotonic = 1

var balancers = map[string]kgo.GroupBalancer{
	"range":              kgo.RangeBalancer(),
	"sticky":             kgo.StickyBalancer(),
	"cooperative-sticky": kgo.CooperativeStickyBalancer(),
}

// belong is a member of a group, which reads and commits until SIGTERM, and says on stdout what happens to it: the
// events of tests/clients/group_member.py, which has the same arguments.
func belong(bootstrap, group, topic, assignor string, instance []string) error {
	stopped, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	options := []kgo.Opt{
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.Balancers(balancers[assignor]),
		kgo.SessionTimeout(3 * time.Second),
		kgo.HeartbeatInterval(300 * time.Millisecond),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(tell("assigned")),
		kgo.OnPartitionsRevoked(tell("revoked")),
		kgo.OnPartitionsLost(tell("revoked")),
	}
	if len(instance) > 0 {
		options = append(options, kgo.InstanceID(instance[0]))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	for stopped.Err() == nil {
		step(stopped, client)
		client.AllowRebalance()
	}
	client.CloseAllowingRebalance()
	say("closed", "")
	return nil
}

// step reads, tells what it has read, and commits it.
func step(stopped context.Context, client *kgo.Client) {
	ctx, cancel := context.WithTimeout(stopped, 100*time.Millisecond)
	fetches := client.PollRecords(ctx, 100)
	cancel()
	var told []string
	offsets := map[int32]int64{}
	for _, record := range fetches.Records() {
		value, _ := json.Marshal(string(record.Value))
		told = append(told, fmt.Sprintf("[%d, %d, %s]", record.Partition, record.Offset, value))
		offsets[record.Partition] = record.Offset + 1
	}
	if len(told) == 0 {
		return
	}
	say("read", `"records": [`+strings.Join(told, ", ")+"]")
	ctx, cancel = context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := client.CommitUncommittedOffsets(ctx); err != nil {
		why, _ := json.Marshal(err.Error())
		say("refused", `"why": `+string(why))
		return
	}
	committed, _ := json.Marshal(offsets)
	say("committed", `"offsets": `+string(committed))
}

func tell(event string) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
		partitions := []int32{}
		for _, some := range topics {
			partitions = append(partitions, some...)
		}
		numbers, _ := json.Marshal(partitions)
		say(event, `"partitions": `+string(numbers))
	}
}

// say tells of an event at once, at the time of the clock that all processes share.
func say(event, what string) {
	var now syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&now)), 0)
	if what != "" {
		what = ", " + what
	}
	os.Stdout.WriteString(fmt.Sprintf("{\"at\": %d, \"event\": %q%s}\n", now.Nano(), event, what))
}
