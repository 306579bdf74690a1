package billing

import (
	"context"
	"strings"
	"testing"
	"time"
)

type arguments map[string]any

type record struct{ Key, Value string }

func TestAnOrderGetsAnInvoice(t *testing.T) {
	ask(t, "reset", nil, nil)
	ask(t, "topics/orders/records", arguments{"values": []string{`{"id": 7, "pieces": 3, "price_cents": 250}`}}, nil)

	writeInvoices(t)

	expectInvoice(t, `{"order":7,"cents":750}`)
}

func TestAnInvoiceIsWrittenAlthoughTheLeaderMoves(t *testing.T) {
	ask(t, "reset", nil, nil)
	ask(t, "topics/orders/records", arguments{"values": []string{`{"id": 8, "pieces": 1, "price_cents": 99}`}}, nil)
	ask(t, "faults", arguments{"api": "Produce", "error": "NOT_LEADER_OR_FOLLOWER", "times": 2}, nil)

	writeInvoices(t)

	expectInvoice(t, `{"order":8,"cents":99}`)
}

func writeInvoices(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := WriteInvoices(ctx, strings.Split(servers, ","), 1); err != nil {
		t.Fatal(err)
	}
}

func expectInvoice(t *testing.T, value string) {
	t.Helper()
	var found []record
	ask(t, "topics/invoices/expect", arguments{"count": 1, "timeout": "10 s"}, &found)
	if len(found) != 1 || found[0].Value != value {
		t.Errorf("expected the invoice %s, got %v", value, found)
	}
}
