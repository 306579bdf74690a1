package billing;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.core.KafkaTemplate;

/** Reads orders, and writes an invoice for each. */
@SpringBootApplication
public class Billing {
    private final KafkaTemplate<String, String> kafka;
    private final ObjectMapper json;

    Billing(KafkaTemplate<String, String> kafka, ObjectMapper json) {
        this.kafka = kafka;
        this.json = json;
    }

    @KafkaListener(topics = "orders", groupId = "billing")
    void bill(String order) throws JsonProcessingException {
        JsonNode ordered = json.readTree(order);
        int cents = ordered.get("pieces").asInt() * ordered.get("price_cents").asInt();
        String invoice = json.createObjectNode().put("order", ordered.get("id").asInt()).put("cents", cents).toString();
        kafka.send("invoices", ordered.get("id").asText(), invoice).join();
    }

    public static void main(String[] arguments) {
        SpringApplication.run(Billing.class, arguments);
    }
}
