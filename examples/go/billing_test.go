package billing

import (
	"testing"

	"minibroker"
)

func TestAnOrderGetsAnInvoice(t *testing.T) {
	kafka := minibroker.Start(t)
	kafka.Produce("orders", `{"id": 7, "pieces": 3, "price_cents": 250}`)

	if err := WriteInvoices(t.Context(), kafka.Servers(), 1); err != nil {
		t.Fatal(err)
	}

	if invoice := kafka.Expect("invoices", 1)[0]; invoice.Value.String() != `{"order":7,"cents":750}` {
		t.Error(invoice)
	}
}
