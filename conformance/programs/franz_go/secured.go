package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const caseTime = 30 * time.Second

// login is a case: what to do, and how to come in.
type login struct {
	Action, Bootstrap, Mechanism, User, Password, Token, Authority, Certificate, Topic string
	Records                                                                            int
	Seconds                                                                            float64
	TokenAuth                                                                          bool
}

// secured does the cases that stdin gives, a line of JSON each, and answers each with one; ../secured.py has the rules.
func secured(stdin io.Reader) error {
	lines := bufio.NewScanner(stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var asked login
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			return err
		}
		answer, err := asked.answer()
		if err != nil {
			answer = map[string]any{"error": err.Error()}
		}
		if err := json.NewEncoder(os.Stdout).Encode(answer); err != nil {
			return err
		}
	}
	return lines.Err()
}

func (asked login) answer() (map[string]any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), caseTime)
	defer cancel()
	options, err := asked.options()
	if err != nil {
		return nil, err
	}
	producer, err := kgo.NewClient(append(options, kgo.DefaultProduceTopic(asked.Topic))...)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	if err := producer.Ping(ctx); err != nil { // its reason; that of a record is that its time is over
		return nil, err
	}
	if asked.Action == "until-refused" {
		return nil, writeUntilRefused(ctx, producer)
	}
	if err := asked.write(ctx, producer); err != nil {
		return nil, err
	}
	return asked.read(ctx, options)
}

func (asked login) write(ctx context.Context, producer *kgo.Client) error {
	pause := time.Duration(asked.Seconds * float64(time.Second) / float64(asked.Records))
	failures := make(chan error, asked.Records)
	for number := 0; number < asked.Records; number++ {
		producer.Produce(ctx, kgo.StringRecord(strconv.Itoa(number)), func(_ *kgo.Record, err error) { failures <- err })
		time.Sleep(pause)
	}
	for number := 0; number < asked.Records; number++ {
		if err := <-failures; err != nil {
			return err
		}
	}
	return nil
}

func writeUntilRefused(ctx context.Context, producer *kgo.Client) error {
	for first := true; ctx.Err() == nil; first = false {
		if err := producer.ProduceSync(ctx, kgo.StringRecord("x")).FirstErr(); err != nil {
			return err
		}
		if first {
			fmt.Println(`{"event": "written"}`)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return errors.New("was not refused")
}

func (asked login) read(ctx context.Context, options []kgo.Opt) (map[string]any, error) {
	consumer, err := kgo.NewClient(append(options,
		kgo.ConsumerGroup(asked.Topic),
		kgo.ConsumeTopics(asked.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(100*time.Millisecond),
		kgo.DisableAutoCommit(),
	)...)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	values, count := map[string]bool{}, 0
	for len(values) < asked.Records {
		fetches := consumer.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		for _, record := range fetches.Records() {
			values[string(record.Value)] = true
			count++
		}
	}
	return map[string]any{"read": count, "distinct": len(values)}, consumer.CommitUncommittedOffsets(ctx)
}

func (asked login) options() ([]kgo.Opt, error) {
	options := []kgo.Opt{
		kgo.SeedBrokers(asked.Bootstrap),
		kgo.RetryTimeout(5 * time.Second),
		kgo.MetadataMinAge(50 * time.Millisecond),
	}
	if asked.Authority != "" {
		config, err := asked.tls()
		if err != nil {
			return nil, err
		}
		options = append(options, kgo.DialTLSConfig(config))
	}
	if asked.Mechanism != "" {
		options = append(options, kgo.SASL(asked.sasl()))
	}
	return options, nil
}

func (asked login) tls() (*tls.Config, error) {
	authority, err := os.ReadFile(asked.Authority)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(authority)
	if asked.Certificate != "" {
		certificate, err := tls.LoadX509KeyPair(asked.Certificate, asked.Certificate)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{certificate}
	}
	return config, nil
}

func (asked login) sasl() sasl.Mechanism {
	secret := scram.Auth{User: asked.User, Pass: asked.Password, IsToken: asked.TokenAuth}
	switch asked.Mechanism {
	case "PLAIN":
		return plain.Auth{User: asked.User, Pass: asked.Password}.AsMechanism()
	case "SCRAM-SHA-256":
		return secret.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return secret.AsSha512Mechanism()
	}
	return oauth.Auth{Token: asked.Token}.AsMechanism()
}
