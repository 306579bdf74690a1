import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.ShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Share consumers of Kafka's Java client; ../programs/sharing.py has the rules. */
public final class Sharing {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Duration PATIENCE = Duration.ofSeconds(30);
    private static final String STRICT_LIMIT = "10";

    private final ShareConsumer<String, String> consumer;
    private final Map<Long, ConsumerRecord<String, String>> polled = new HashMap<>();

    private Sharing(JsonNode asked) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", asked.get("bootstrap").asText());
        settings.put("group.id", asked.get("group").asText());
        settings.put("key.deserializer", StringDeserializer.class);
        settings.put("value.deserializer", StringDeserializer.class);
        settings.put("share.acknowledgement.mode", asked.get("explicit").asBoolean() ? "explicit" : "implicit");
        if (asked.path("strict").asBoolean()) {
            settings.put("share.acquire.mode", "record_limit");
            settings.put("max.poll.records", STRICT_LIMIT);
        }
        consumer = new KafkaShareConsumer<>(settings);
        consumer.subscribe(List.of(asked.get("topic").asText()));
    }

    public static void main(String[] arguments) throws IOException {
        Map<String, Sharing> consumers = new HashMap<>();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                JsonNode asked = JSON.readTree(line);
                String name = asked.get("name").asText();
                if (asked.get("do").asText().equals("open")) {
                    consumers.put(name, new Sharing(asked));
                } else {
                    consumers.get(name).answer(asked, answer);
                }
            } catch (Exception failed) {
                answer.put("failure", failed.toString());
            }
            System.out.println(answer);
        }
        Runtime.getRuntime().halt(0); // the others end without leaving
    }

    private void answer(JsonNode asked, ObjectNode answer) {
        switch (asked.get("do").asText()) {
            case "poll" -> poll(asked.get("seconds").asDouble(), answer.putArray("records"));
            case "say" -> asked.get("types").fields().forEachRemaining(
                said -> consumer.acknowledge(
                    polled.get(Long.parseLong(said.getKey())), AcknowledgeType.valueOf(said.getValue().asText())));
            case "commit" -> answer.put("error", commit());
            case "close" -> consumer.close(PATIENCE);
            default -> throw new IllegalArgumentException(asked.toString());
        }
    }

    private void poll(double seconds, ArrayNode records) {
        for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis((long) (1000 * seconds)))) {
            polled.put(record.offset(), record);
            records.addArray().add(record.offset()).add(record.value()).add(record.deliveryCount().orElse((short) 0));
        }
    }

    private String commit() {
        for (Optional<KafkaException> outcome : consumer.commitSync(PATIENCE).values()) {
            if (outcome.isPresent()) {
                return Errors.forException(outcome.get()).name();
            }
        }
        return null;
    }
}
