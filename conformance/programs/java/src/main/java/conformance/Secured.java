package conformance;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Does the cases that stdin gives, a line of JSON each, and answers each with one; ../../../../../../secured.py has the rules. */
final class Secured {
    private static final long PATIENCE_MS = 30_000;
    private static final String MODULES = "org.apache.kafka.common.security.";
    private static final Map<String, String> LOGIN_MODULES = Map.of(
        "PLAIN", "plain.PlainLoginModule",
        "SCRAM-SHA-256", "scram.ScramLoginModule",
        "SCRAM-SHA-512", "scram.ScramLoginModule");
    private static final ObjectMapper JSON = new ObjectMapper();

    private final JsonNode asked;
    private final String topic;

    private Secured(JsonNode asked) {
        this.asked = asked;
        this.topic = asked.get("topic").asText();
    }

    static void run() throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                new Secured(JSON.readTree(line)).answer(answer);
            } catch (Exception refused) {
                answer.put("error", reasons(refused));
            }
            System.out.println(answer);
        }
    }

    private static String reasons(Throwable error) {
        List<String> reasons = new ArrayList<>();
        for (Throwable each = error; each != null; each = each.getCause()) {
            reasons.add(each.toString());
        }
        return String.join(" <- ", reasons);
    }

    private void answer(ObjectNode answer) throws Exception {
        String action = asked.get("action").asText();
        if (action.equals("write-until-refused")) {
            writeUntilRefused();
        } else if (action.equals("commit-until-refused")) {
            commitUntilRefused();
        } else if (action.equals("read-until-refused")) {
            readUntilRefused();
        } else {
            write();
            read(answer);
        }
    }

    private interface Act {
        void run() throws Exception;
    }

    private static void untilRefused(Act act) throws Exception {
        long end = System.currentTimeMillis() + PATIENCE_MS;
        for (boolean first = true; System.currentTimeMillis() < end; first = false) {
            act.run();
            if (first) {
                System.out.println("{\"event\": \"begun\"}");
            }
            Thread.sleep(5);
        }
        throw new IllegalStateException("was not refused");
    }

    private void write() throws Exception {
        int records = asked.get("records").asInt();
        long pauseMs = (long) (1000 * asked.get("seconds").asDouble() / records);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (Producer<String, String> producer = new KafkaProducer<>(settings())) {
            for (int number = 0; number < records; number++) {
                sent.add(producer.send(new ProducerRecord<>(topic, Integer.toString(number))));
                if (number == 0) {
                    sent.get(0).get(); // if it is refused each of the others would be, a second later
                }
                Thread.sleep(pauseMs);
            }
            for (Future<RecordMetadata> each : sent) {
                each.get();
            }
        }
    }

    private void writeUntilRefused() throws Exception {
        try (Producer<String, String> producer = new KafkaProducer<>(settings())) {
            untilRefused(() -> producer.send(new ProducerRecord<>(topic, "x")).get());
        }
    }

    private void commitUntilRefused() throws Exception {
        Properties settings = settings();
        settings.put("transactional.id", topic);
        try (Producer<String, String> producer = new KafkaProducer<>(settings)) {
            producer.initTransactions();
            untilRefused(() -> {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(topic, "x"));
                producer.commitTransaction();
            });
        }
    }

    private void readUntilRefused() throws Exception {
        try (Consumer<String, String> consumer = new KafkaConsumer<>(settings())) {
            consumer.subscribe(List.of(topic));
            while (consumer.poll(Duration.ofMillis(100)).isEmpty()) { }
            untilRefused(() -> consumer.poll(Duration.ofMillis(100)));
        }
    }

    private void read(ObjectNode answer) {
        int records = asked.get("records").asInt();
        long end = System.currentTimeMillis() + PATIENCE_MS;
        Set<String> values = new HashSet<>();
        int count = 0;
        try (Consumer<String, String> consumer = new KafkaConsumer<>(settings())) {
            consumer.subscribe(List.of(topic));
            while (values.size() < records && System.currentTimeMillis() < end) {
                for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofMillis(100))) {
                    values.add(each.value());
                    count++;
                }
            }
            consumer.commitSync();
        }
        answer.put("read", count).put("distinct", values.size());
    }

    private Properties settings() {
        Properties settings = new Properties();
        settings.put("group.id", topic);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("key.deserializer", StringDeserializer.class);
        settings.put("value.deserializer", StringDeserializer.class);
        settings.put("key.serializer", StringSerializer.class);
        settings.put("value.serializer", StringSerializer.class);
        settings.put("max.block.ms", "20000");
        if (asked.hasNonNull("config")) {
            JsonNode config = asked.get("config");
            config.fieldNames().forEachRemaining(name -> settings.put(name, config.get(name).asText()));
            allow(settings.getProperty("sasl.oauthbearer.token.endpoint.url", ""));
            return settings;
        }
        settings.put("bootstrap.servers", asked.get("bootstrap").asText());
        settings.put("security.protocol", asked.get("protocol").asText());
        if (asked.hasNonNull("authority")) {
            settings.put("ssl.truststore.type", "PEM");
            settings.put("ssl.truststore.location", asked.get("authority").asText());
        }
        if (asked.hasNonNull("certificate")) {
            settings.put("ssl.keystore.type", "PEM");
            settings.put("ssl.keystore.location", asked.get("certificate").asText());
        }
        if (asked.hasNonNull("mechanism")) {
            logIn(settings, asked.get("mechanism").asText());
        }
        return settings;
    }

    private void logIn(Properties settings, String mechanism) {
        settings.put("sasl.mechanism", mechanism);
        if (!mechanism.equals("OAUTHBEARER")) {
            settings.put("sasl.jaas.config", String.format("%s%s required username=\"%s\" password=\"%s\";", MODULES,
                LOGIN_MODULES.get(mechanism), asked.get("user").asText(), asked.get("password").asText()));
            return;
        }
        String url = asked.get("token_url").asText();
        allow(url);
        settings.put("sasl.oauthbearer.token.endpoint.url", url);
        settings.put("sasl.login.callback.handler.class", MODULES + "oauthbearer.OAuthBearerLoginCallbackHandler");
        String client = asked.hasNonNull("client_id") ? String.format(" clientId=\"%s\" clientSecret=\"%s\" scope=\"%s\"",
            asked.get("client_id").asText(), asked.get("client_secret").asText(), asked.get("scope").asText()) : "";
        settings.put("sasl.jaas.config", MODULES + "oauthbearer.OAuthBearerLoginModule required" + client + ";");
    }

    /** Lets Kafka 4 get tokens from a URL: it uses only those that are named like this. */
    private static void allow(String url) {
        System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", url);
        System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.files", url.replace("file://", ""));
    }
}
