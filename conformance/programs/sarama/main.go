// sarama: does the cases that stdin gives, a line of JSON each, and answers each with one; ../secured.py has the rules.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
	"minibroker/conformance/cases"
)

// login is a case.
type login struct{ cases.Case }

func main() {
	do := func(asked cases.Case) (map[string]any, error) { return login{asked}.answer() }
	if err := cases.Run(os.Stdin, do); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (asked login) answer() (map[string]any, error) {
	config, err := asked.config()
	if err != nil {
		return nil, err
	}
	switch asked.Action {
	case "read-until-refused":
		return nil, asked.readUntilRefused(config)
	case "commit-until-refused":
		config.Producer.Transaction.ID = asked.Topic
		return nil, asked.writeUntilRefused(config)
	case "write-until-refused":
		return nil, asked.writeUntilRefused(config)
	}
	if err := asked.write(config); err != nil {
		return nil, err
	}
	return asked.read(config)
}

func (asked login) write(config *sarama.Config) error {
	producer, err := sarama.NewAsyncProducer([]string{asked.Bootstrap}, config)
	if err != nil {
		return err
	}
	go func() {
		for number := 0; number < asked.Records; number++ {
			producer.Input() <- asked.record(strconv.Itoa(number))
			time.Sleep(asked.Pause())
		}
		producer.AsyncClose()
	}()
	return errors.Join(collect(producer.Errors())...)
}

func collect(failures <-chan *sarama.ProducerError) (all []error) {
	for failure := range failures {
		all = append(all, failure)
	}
	return all
}

// writeUntilRefused commits a transaction for each record if the producer has a transactional id.
func (asked login) writeUntilRefused(config *sarama.Config) error {
	config.Producer.Return.Successes = true
	producer, err := sarama.NewSyncProducer([]string{asked.Bootstrap}, config)
	if err != nil {
		return err
	}
	defer producer.Close()
	return cases.UntilRefused(func() error {
		if producer.IsTransactional() {
			if err := producer.BeginTxn(); err != nil {
				return err
			}
		}
		_, _, err := producer.SendMessage(asked.record("x"))
		if err == nil && producer.IsTransactional() {
			err = producer.CommitTxn()
		}
		return err
	})
}

func (asked login) record(value string) *sarama.ProducerMessage {
	return &sarama.ProducerMessage{Topic: asked.Topic, Value: sarama.StringEncoder(value)}
}

func (asked login) readUntilRefused(config *sarama.Config) error {
	config.Consumer.Return.Errors = true
	consumer, err := sarama.NewConsumer([]string{asked.Bootstrap}, config)
	if err != nil {
		return err
	}
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(asked.Topic, 0, sarama.OffsetOldest)
	if err != nil {
		return err
	}
	defer partition.AsyncClose()
	return cases.UntilRefused(func() error {
		select {
		case <-partition.Messages():
			return nil
		case failure := <-partition.Errors():
			return failure
		case <-time.After(cases.Patience):
			return errors.New("neither a record nor an error")
		}
	})
}

func (asked login) read(config *sarama.Config) (map[string]any, error) {
	group, err := sarama.NewConsumerGroup([]string{asked.Bootstrap}, asked.Topic, config)
	if err != nil {
		return nil, err
	}
	defer group.Close()
	ctx, cancel := context.WithTimeout(context.Background(), cases.Patience)
	defer cancel()
	reader := &reader{expected: asked.Records, values: map[string]bool{}, enough: cancel}
	for ctx.Err() == nil {
		if err := group.Consume(ctx, []string{asked.Topic}, reader); err != nil {
			return nil, err
		}
	}
	return map[string]any{"read": reader.count, "distinct": len(reader.values)}, nil
}

// reader reads the one partition of the topic, until it has seen enough.
type reader struct {
	expected, count int
	values          map[string]bool
	enough          func()
}

func (r *reader) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (r *reader) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (r *reader) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		r.values[string(message.Value)] = true
		r.count++
		session.MarkMessage(message, "")
		if len(r.values) == r.expected {
			session.Commit()
			r.enough()
		}
	}
	return nil
}

func (asked login) config() (*sarama.Config, error) {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Metadata.Retry.Max = 1
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Idempotent = true
	config.Net.MaxOpenRequests = 1
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.MaxWaitTime = 100 * time.Millisecond
	tls, err := asked.TLS()
	config.Net.TLS.Enable, config.Net.TLS.Config = tls != nil, tls
	if asked.Mechanism != "" {
		sasl := &config.Net.SASL
		sasl.Enable, sasl.User, sasl.Password = true, asked.User, asked.Password
		sasl.Mechanism = sarama.SASLMechanism(asked.Mechanism)
		sasl.TokenProvider = token(asked.Token)
		sasl.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &exchange{mechanism: asked.Mechanism} }
	}
	return config, err
}

type token string

func (t token) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: string(t)}, nil
}

// exchange is SCRAM, which sarama leaves to a library.
type exchange struct {
	*scram.ClientConversation
	mechanism string
}

func (e *exchange) Begin(user, password, authzID string) error {
	generator := scram.SHA256
	if e.mechanism == "SCRAM-SHA-512" {
		generator = scram.SHA512
	}
	client, err := generator.NewClient(user, password, authzID)
	if err == nil {
		e.ClientConversation = client.NewConversation()
	}
	return err
}
