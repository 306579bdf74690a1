package billing;

import static org.assertj.core.api.Assertions.assertThat;

import minibroker.Broker;
import minibroker.MinibrokerTest;
import org.junit.jupiter.api.Test;
import org.springframework.boot.test.context.SpringBootTest;

@MinibrokerTest(property = "spring.kafka.bootstrap-servers")
@SpringBootTest
class BillingTest {
    @Test
    void anOrderGetsAnInvoice(Broker kafka) {
        kafka.produce("orders", "{\"id\": 7, \"pieces\": 3, \"price_cents\": 250}");

        assertThat(kafka.expect("invoices").get(0).value()).isEqualTo("{\"order\":7,\"cents\":750}");
    }
}
