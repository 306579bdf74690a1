package billing

import (
	"testing"
	"time"

	"minibroker"
)

func TestAnInvoiceIsWrittenAlthoughTheLeaderMoves(t *testing.T) {
	kafka := minibroker.Start(t)
	kafka.Produce("orders", `{"id": 8, "pieces": 1, "price_cents": 99}`)
	kafka.AddFault(minibroker.NewFault{API: "Produce", Error: "NOT_LEADER_OR_FOLLOWER", Times: 2})

	writeInvoices(t, kafka)

	kafka.Expect("invoices", 1)
	kafka.WaitForRequests("Produce", 3)
}

func TestAnInvoiceIsWrittenOnceAlthoughAnAnswerIsLost(t *testing.T) {
	kafka := minibroker.Start(t)
	kafka.Produce("orders", `{"id": 9, "pieces": 2, "price_cents": 10}`)
	kafka.AddFault(minibroker.NewFault{API: "Produce", Close: "after", Times: 1})

	writeInvoices(t, kafka)

	if invoices := kafka.Records("invoices"); len(invoices) != 1 {
		t.Error(invoices)
	}
}

func TestOffsetsOfAGroupThatIsAwayTooLongAreGone(t *testing.T) {
	kafka := minibroker.Start(t)
	for _, topic := range []string{"orders", "invoices"} { // which keep records forever
		kafka.CreateTopic(topic, minibroker.NewTopic{Config: map[string]any{"retention.ms": -1}})
	}
	kafka.Produce("orders", `{"id": 10, "pieces": 1, "price_cents": 20}`)
	writeInvoices(t, kafka)

	kafka.AdvanceClock(8 * 24 * time.Hour) // offsets.retention.minutes is 7 days

	writeInvoices(t, kafka)
	kafka.Expect("invoices", 2)
}

func writeInvoices(t *testing.T, kafka *minibroker.Broker) {
	t.Helper()
	if err := WriteInvoices(t.Context(), kafka.Servers(), 1); err != nil {
		t.Fatal(err)
	}
}
