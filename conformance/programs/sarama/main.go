// sarama: does the cases that stdin gives, a line of JSON each, and answers each with one; ../secured.py has the rules.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

const patience = 30 * time.Second

// login is a case: what to do, and how to come in.
type login struct {
	Action, Bootstrap, Mechanism, User, Password, Token, Authority, Certificate, Topic string
	Records                                                                            int
	Seconds                                                                            float64
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var asked login
		err := json.Unmarshal(lines.Bytes(), &asked)
		var answer map[string]any
		if err == nil {
			answer, err = asked.answer()
		}
		if err != nil {
			answer = map[string]any{"error": err.Error()}
		}
		if err := json.NewEncoder(os.Stdout).Encode(answer); err != nil {
			os.Exit(1)
		}
	}
}

func (asked login) answer() (map[string]any, error) {
	config, err := asked.config()
	if err != nil {
		return nil, err
	}
	if asked.Action == "until-refused" {
		return nil, asked.writeUntilRefused(config)
	}
	if err := asked.write(config); err != nil {
		return nil, err
	}
	return asked.read(config)
}

func (asked login) write(config *sarama.Config) error {
	pause := time.Duration(asked.Seconds * float64(time.Second) / float64(asked.Records))
	producer, err := sarama.NewAsyncProducer([]string{asked.Bootstrap}, config)
	if err != nil {
		return err
	}
	go func() {
		for number := 0; number < asked.Records; number++ {
			producer.Input() <- asked.record(strconv.Itoa(number))
			time.Sleep(pause)
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

func (asked login) writeUntilRefused(config *sarama.Config) error {
	config.Producer.Return.Successes = true
	producer, err := sarama.NewSyncProducer([]string{asked.Bootstrap}, config)
	if err != nil {
		return err
	}
	defer producer.Close()
	end := time.Now().Add(patience)
	for first := true; time.Now().Before(end); first = false {
		if _, _, err := producer.SendMessage(asked.record("x")); err != nil {
			return err
		}
		if first {
			fmt.Println(`{"event": "written"}`)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return errors.New("was not refused")
}

func (asked login) record(value string) *sarama.ProducerMessage {
	return &sarama.ProducerMessage{Topic: asked.Topic, Value: sarama.StringEncoder(value)}
}

func (asked login) read(config *sarama.Config) (map[string]any, error) {
	group, err := sarama.NewConsumerGroup([]string{asked.Bootstrap}, asked.Topic, config)
	if err != nil {
		return nil, err
	}
	defer group.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
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
	if asked.Authority != "" {
		if err := asked.encrypt(config); err != nil {
			return nil, err
		}
	}
	if asked.Mechanism != "" {
		sasl := &config.Net.SASL
		sasl.Enable, sasl.User, sasl.Password = true, asked.User, asked.Password
		sasl.Mechanism = sarama.SASLMechanism(asked.Mechanism)
		sasl.TokenProvider = token(asked.Token)
		sasl.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &exchange{mechanism: asked.Mechanism} }
	}
	return config, nil
}

func (asked login) encrypt(config *sarama.Config) error {
	authority, err := os.ReadFile(asked.Authority)
	if err != nil {
		return err
	}
	config.Net.TLS.Enable = true
	config.Net.TLS.Config = &tls.Config{RootCAs: x509.NewCertPool()}
	config.Net.TLS.Config.RootCAs.AppendCertsFromPEM(authority)
	if asked.Certificate == "" {
		return nil
	}
	certificate, err := tls.LoadX509KeyPair(asked.Certificate, asked.Certificate)
	config.Net.TLS.Config.Certificates = []tls.Certificate{certificate}
	return err
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
