package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Creates, describes, changes and deletes a topic; every step says what it expected.
func administer(ctx context.Context, bootstrap, prefix string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		return err
	}
	defer client.Close()
	admin := administration{client, kadm.NewClient(client), prefix + "-admin"}
	steps := []struct {
		name string
		step func(context.Context) error
	}{
		{"brokers", admin.brokers},
		{"refuse a topic", admin.refuse},
		{"create", admin.create},
		{"configs", admin.configs},
		{"partitions", admin.partitions},
		{"offsets", admin.offsets},
		{"delete", admin.delete},
	}
	for _, each := range steps {
		if err := each.step(ctx); err != nil {
			return fmt.Errorf("%s: %w", each.name, err)
		}
	}
	fmt.Printf("franz-go: %d steps of administration\n", len(steps))
	return nil
}

type administration struct {
	connection *kgo.Client
	client     *kadm.Client
	topic      string
}

func (a administration) brokers(ctx context.Context) error {
	metadata, err := a.client.BrokerMetadata(ctx)
	if err != nil {
		return err
	}
	if len(metadata.Brokers) != 1 || metadata.Cluster == "" || metadata.Controller != metadata.Brokers[0].NodeID {
		return fmt.Errorf("one broker that is the controller of a named cluster was expected: %+v", metadata)
	}
	return nil
}

func (a administration) refuse(ctx context.Context) error {
	wrong := "none"
	for expected, create := range map[*kerr.Error]func() (kadm.CreateTopicResponse, error){
		kerr.InvalidTopicException:    func() (kadm.CreateTopicResponse, error) { return a.client.CreateTopic(ctx, 1, 1, nil, "a b") },
		kerr.InvalidPartitions:        func() (kadm.CreateTopicResponse, error) { return a.client.CreateTopic(ctx, 0, 1, nil, a.topic) },
		kerr.InvalidReplicationFactor: func() (kadm.CreateTopicResponse, error) { return a.client.CreateTopic(ctx, 1, 9, nil, a.topic) },
		kerr.InvalidConfig: func() (kadm.CreateTopicResponse, error) {
			return a.client.CreateTopic(ctx, 1, 1, map[string]*string{"cleanup.policy": &wrong}, a.topic)
		},
	} {
		if _, err := create(); !errors.Is(err, expected) {
			return fmt.Errorf("%v was expected: %v", expected, err)
		}
	}
	return nil
}

func (a administration) create(ctx context.Context) error {
	retention := "12345"
	created, err := a.client.CreateTopic(ctx, 2, 1, map[string]*string{"retention.ms": &retention}, a.topic)
	if err != nil {
		return err
	}
	if created.NumPartitions != 2 || created.ReplicationFactor != 1 || *created.Configs["retention.ms"].Value != retention {
		return fmt.Errorf("2 partitions, 1 replica, retention.ms=12345 were expected: %+v", created)
	}
	if _, err := a.client.CreateTopic(ctx, 2, 1, nil, a.topic); !errors.Is(err, kerr.TopicAlreadyExists) {
		return fmt.Errorf("TOPIC_ALREADY_EXISTS was expected: %v", err)
	}
	topic, err := a.metadata(ctx)
	if err == nil && (topic.TopicID != created.ID || topic.IsInternal || len(topic.Partitions) != 2) {
		err = fmt.Errorf("topic id %v and 2 partitions were expected: %+v", created.ID, topic)
	}
	return err
}

func (a administration) configs(ctx context.Context) error {
	value, compact := "54321", "compact"
	changes := []kadm.AlterConfig{
		{Op: kadm.SetConfig, Name: "retention.ms", Value: &value},
		{Op: kadm.AppendConfig, Name: "cleanup.policy", Value: &compact},
	}
	altered, err := a.client.AlterTopicConfigs(ctx, changes, a.topic)
	if err != nil {
		return err
	}
	if _, err := altered.On(a.topic, func(r *kadm.AlterConfigsResponse) error { return r.Err }); err != nil {
		return err
	}
	return a.expectConfigs(ctx, map[string]string{"retention.ms": value, "cleanup.policy": "delete,compact", "segment.bytes": "1073741824"})
}

// Wait until a broker has the configs, as Kafka's brokers apply a change a little after the controller has answered.
func (a administration) expectConfigs(ctx context.Context, expected map[string]string) error {
	err := a.haveConfigs(ctx, expected)
	for end := time.Now().Add(10 * time.Second); err != nil && time.Now().Before(end); err = a.haveConfigs(ctx, expected) {
		time.Sleep(20 * time.Millisecond)
	}
	return err
}

func (a administration) haveConfigs(ctx context.Context, expected map[string]string) error {
	described, err := a.client.DescribeTopicConfigs(ctx, a.topic)
	if err != nil {
		return err
	}
	resource, err := described.On(a.topic, nil)
	if err != nil {
		return err
	}
	found := map[string]string{}
	for _, config := range resource.Configs {
		found[config.Key] = config.MaybeValue()
	}
	for name, value := range expected {
		if found[name] != value {
			return fmt.Errorf("%s=%s was expected: %q", name, value, found[name])
		}
	}
	return nil
}

func (a administration) partitions(ctx context.Context) error {
	grown, err := a.client.UpdatePartitions(ctx, 5, a.topic)
	if err == nil {
		err = grown.Error()
	}
	if err != nil {
		return err
	}
	shrunk, err := a.client.UpdatePartitions(ctx, 4, a.topic)
	if err != nil {
		return err
	}
	if err := shrunk.Error(); !errors.Is(err, kerr.InvalidPartitions) {
		return fmt.Errorf("INVALID_PARTITIONS was expected: %v", err)
	}
	topic, err := a.metadata(ctx)
	if err == nil && len(topic.Partitions) != 5 {
		err = fmt.Errorf("5 partitions were expected: %+v", topic)
	}
	return err
}

func (a administration) offsets(ctx context.Context) error {
	listed, err := a.client.ListOffsetsAfterMilli(ctx, 0, a.topic)
	if err != nil {
		return err
	}
	for partition := range int32(5) {
		if offset, found := listed.Lookup(a.topic, partition); !found || offset.Err != nil || offset.Offset != 0 {
			return fmt.Errorf("offset 0 was expected for partition %d: %+v", partition, offset)
		}
	}
	return nil
}

func (a administration) delete(ctx context.Context) error {
	if _, err := a.client.DeleteTopic(ctx, a.topic); err != nil {
		return err
	}
	if _, err := a.client.DeleteTopic(ctx, a.topic); !errors.Is(err, kerr.UnknownTopicOrPartition) {
		return fmt.Errorf("UNKNOWN_TOPIC_OR_PARTITION was expected: %v", err)
	}
	if _, err := a.metadata(ctx); !errors.Is(err, kerr.UnknownTopicOrPartition) {
		return fmt.Errorf("UNKNOWN_TOPIC_OR_PARTITION was expected: %v", err)
	}
	return nil
}

// Asks the broker: kadm's own listing may answer from what the client remembers.
func (a administration) metadata(ctx context.Context) (kmsg.MetadataResponseTopic, error) {
	request := kmsg.NewPtrMetadataRequest()
	request.Topics = []kmsg.MetadataRequestTopic{{Topic: &a.topic}}
	response, err := request.RequestWith(ctx, a.connection)
	if err != nil {
		return kmsg.MetadataResponseTopic{}, err
	}
	topic := response.Topics[0]
	return topic, kerr.ErrorForCode(topic.ErrorCode)
}
