package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
	"minibroker/conformance/cases"
)

// login is a case.
type login struct{ cases.Case }

func secured(stdin io.Reader) error {
	return cases.Run(stdin, func(asked cases.Case) (map[string]any, error) { return login{asked}.answer() })
}

func (asked login) answer() (map[string]any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), cases.Patience)
	defer cancel()
	options, err := asked.options()
	if err != nil {
		return nil, err
	}
	switch asked.Action {
	case "read-until-refused":
		return nil, asked.readUntilRefused(ctx, options)
	case "commit-until-refused":
		options = append(options, kgo.TransactionalID(asked.Topic))
	}
	producer, err := kgo.NewClient(append(options, kgo.DefaultProduceTopic(asked.Topic))...)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	if err := producer.Ping(ctx); err != nil { // its reason; that of a record is that its time is over
		return nil, err
	}
	write := func() error { return producer.ProduceSync(ctx, kgo.StringRecord("x")).FirstErr() }
	switch asked.Action {
	case "write-until-refused":
		return nil, cases.UntilRefused(write)
	case "commit-until-refused":
		return nil, cases.UntilRefused(func() error {
			if err := producer.BeginTransaction(); err != nil {
				return err
			}
			if err := write(); err != nil {
				return err
			}
			return producer.EndTransaction(ctx, kgo.TryCommit)
		})
	}
	if err := asked.write(ctx, producer); err != nil {
		return nil, err
	}
	return asked.read(ctx, options)
}

func (asked login) write(ctx context.Context, producer *kgo.Client) error {
	failures := make(chan error, asked.Records)
	for number := 0; number < asked.Records; number++ {
		producer.Produce(ctx, kgo.StringRecord(strconv.Itoa(number)), func(_ *kgo.Record, err error) { failures <- err })
		time.Sleep(asked.Pause())
	}
	for number := 0; number < asked.Records; number++ {
		if err := <-failures; err != nil {
			return err
		}
	}
	return nil
}

func (asked login) consumer(options []kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append(options,
		kgo.ConsumerGroup(asked.Topic),
		kgo.ConsumeTopics(asked.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(100*time.Millisecond),
		kgo.DisableAutoCommit(),
	)...)
}

func (asked login) readUntilRefused(ctx context.Context, options []kgo.Opt) error {
	consumer, err := asked.consumer(options)
	if err != nil {
		return err
	}
	defer consumer.Close()
	return cases.UntilRefused(func() error { return consumer.PollFetches(ctx).Err() })
}

func (asked login) read(ctx context.Context, options []kgo.Opt) (map[string]any, error) {
	consumer, err := asked.consumer(options)
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
	if asked.Config != nil {
		return asked.configured(options)
	}
	config, err := asked.TLS()
	if config != nil {
		options = append(options, kgo.DialTLSConfig(config))
	}
	if asked.Mechanism != "" {
		login := saslConfig{asked.Mechanism, asked.User, asked.Password, asked.Token, asked.TokenAuth}
		options = append(options, kgo.SASL(login.mechanism()))
	}
	return options, err
}

// clientConfig is what the test kit's client_config returns for franz-go.
type clientConfig struct {
	SeedBrokers []string `json:"seed_brokers"`
	TLS         *struct {
		Authority   string `json:"ca_pem"`
		Key         string `json:"key_pem"`
		Certificate string `json:"certificate_pem"`
	}
	SASL *saslConfig
}

type saslConfig struct {
	Mechanism, User, Pass, Token string
	IsToken                      bool `json:"is_token"`
}

// configured are the options with those of the test kit's client_config.
func (asked login) configured(options []kgo.Opt) ([]kgo.Opt, error) {
	var config clientConfig
	if err := json.Unmarshal(asked.Config, &config); err != nil {
		return nil, err
	}
	options = append(options, kgo.SeedBrokers(config.SeedBrokers...))
	if config.TLS != nil {
		trusted := x509.NewCertPool()
		trusted.AppendCertsFromPEM([]byte(config.TLS.Authority))
		own := &tls.Config{RootCAs: trusted}
		if config.TLS.Key != "" {
			pair, err := tls.X509KeyPair([]byte(config.TLS.Certificate), []byte(config.TLS.Key))
			if err != nil {
				return nil, err
			}
			own.Certificates = []tls.Certificate{pair}
		}
		options = append(options, kgo.DialTLSConfig(own))
	}
	if config.SASL != nil {
		options = append(options, kgo.SASL(config.SASL.mechanism()))
	}
	return options, nil
}

func (login saslConfig) mechanism() sasl.Mechanism {
	secret := scram.Auth{User: login.User, Pass: login.Pass, IsToken: login.IsToken}
	switch login.Mechanism {
	case "PLAIN":
		return plain.Auth{User: login.User, Pass: login.Pass}.AsMechanism()
	case "SCRAM-SHA-256":
		return secret.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return secret.AsSha512Mechanism()
	}
	return oauth.Auth{Token: login.Token}.AsMechanism()
}
