package billing;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;
import org.springframework.boot.test.context.SpringBootTest;
import org.springframework.test.context.DynamicPropertyRegistry;
import org.springframework.test.context.DynamicPropertySource;

@SpringBootTest
class BillingTest {
    private static final Broker KAFKA = new Broker();

    @DynamicPropertySource
    static void kafka(DynamicPropertyRegistry properties) {
        properties.add("spring.kafka.bootstrap-servers", () -> KAFKA.servers);
    }

    @Test
    void anInvoiceIsWrittenAlthoughTheLeaderMoves() throws Exception {
        KAFKA.ask("faults", "{\"api\": \"Produce\", \"topic\": \"invoices\", \"error\": \"NOT_LEADER_OR_FOLLOWER\", \"times\": 2}");
        KAFKA.ask("topics/orders/records", "{\"values\": [\"{\\\"id\\\": 7, \\\"pieces\\\": 3, \\\"price_cents\\\": 250}\"]}");

        String invoices = KAFKA.ask("topics/invoices/expect", "{\"count\": 1, \"timeout\": \"30 s\"}");

        assertThat(invoices).contains("{\\\"order\\\":7,\\\"cents\\\":750}");
    }
}
