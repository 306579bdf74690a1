package billing

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"minibroker"
)

func TestTopicsOfTheirOwn(t *testing.T) {
	for _, value := range []string{"first", "second", "third"} {
		t.Run(value, func(t *testing.T) {
			t.Parallel()
			kafka := minibroker.Share(t)
			topic := kafka.Topic()

			send(t, kafka, topic, value)

			if record := kafka.Expect(topic, 1)[0]; record.Value.String() != value {
				t.Error(record)
			}
		})
	}
}

func send(t *testing.T, kafka *minibroker.Broker, topic, value string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(kafka.Servers()...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.ProduceSync(context.Background(), &kgo.Record{Topic: topic, Value: []byte(value)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
}
