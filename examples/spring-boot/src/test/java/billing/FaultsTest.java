package billing;

import static org.assertj.core.api.Assertions.assertThat;

import java.time.Duration;
import minibroker.Broker;
import minibroker.MinibrokerTest;
import org.junit.jupiter.api.Test;
import org.springframework.beans.factory.annotation.Autowired;
import org.springframework.boot.test.context.SpringBootTest;
import org.springframework.kafka.config.KafkaListenerEndpointRegistry;
import org.springframework.test.annotation.DirtiesContext;

@MinibrokerTest(property = "spring.kafka.bootstrap-servers", settings = "log.retention.ms=-1") // keeps records forever
@DirtiesContext(classMode = DirtiesContext.ClassMode.BEFORE_CLASS) // the application of the other class has another broker
@SpringBootTest
class FaultsTest {
    private static final Duration PATIENCE = Duration.ofSeconds(30);

    @Autowired
    private KafkaListenerEndpointRegistry listeners;

    @Test
    void anInvoiceIsWrittenAlthoughTheLeaderMoves(Broker kafka) {
        kafka.addFault(fault -> fault.api("Produce").topic("invoices").error("NOT_LEADER_OR_FOLLOWER").times(2));
        kafka.produce("orders", "{\"id\": 8, \"pieces\": 1, \"price_cents\": 99}");

        kafka.expect("invoices", 1, wait -> wait.timeout(PATIENCE));
        kafka.waitForRequests("Produce", 3);
    }

    @Test
    void anInvoiceIsWrittenOnceAlthoughAnAnswerIsLost(Broker kafka) {
        kafka.addFault(fault -> fault.api("Produce").topic("invoices").close("after").times(1));
        kafka.produce("orders", "{\"id\": 9, \"pieces\": 2, \"price_cents\": 10}");

        kafka.waitUntilCaughtUp("billing", "orders", wait -> wait.timeout(PATIENCE));
        assertThat(kafka.records("invoices")).hasSize(1);
    }

    @Test
    void offsetsOfAGroupThatIsAwayTooLongAreGone(Broker kafka) {
        kafka.produce("orders", "{\"id\": 10, \"pieces\": 1, \"price_cents\": 20}");
        kafka.waitUntilCaughtUp("billing", "orders", wait -> wait.timeout(PATIENCE));
        listeners.stop();

        kafka.advanceClock(Duration.ofDays(8)); // offsets.retention.minutes is 7 days

        listeners.start();
        kafka.expect("invoices", 2, wait -> wait.timeout(PATIENCE));
    }
}
