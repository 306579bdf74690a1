package minibroker;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Produced;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The verbs for share groups and streams groups, beside Apache Kafka's own clients as members. */
@MinibrokerTest
class LiveGroupsTest {
    @Test
    void whatAShareGroupHoldsIsSeenAndExpires(Broker kafka) {
        kafka.configureShareGroup("workers", Map.of("share.auto.offset.reset", "earliest"));
        kafka.produce("orders", "first", "second");
        Map<String, Object> config = new HashMap<>(kafka.clientConfig("java"));
        config.put("group.id", "workers");
        config.put("share.acknowledgement.mode", "explicit");
        try (var consumer = new KafkaShareConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of("orders"));
            poll(consumer, 2);
            assertEquals(1, kafka.waitUntilAssigned("workers", "orders").size());
            List<Broker.Delivery> held = kafka.deliveries("workers", with -> with.topic("orders"));
            assertEquals(List.of(0L, 1L), List.of(held.get(0).first(), held.get(0).last()));
            assertEquals("acquired", held.get(0).state());
            assertEquals(2, kafka.expireLocks("workers"));
            assertEquals("available", kafka.deliveries("workers").get(0).state());
        }
    }

    @Test
    void theTasksOfAStreamsGroupAreSeen(Broker kafka, @TempDir Path folder) {
        kafka.createTopic("orders", with -> with.partitions(2));
        kafka.createTopic("invoices");
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream("orders", Consumed.with(Serdes.String(), Serdes.String()))
            .to("invoices", Produced.with(Serdes.String(), Serdes.String()));
        Properties config = new Properties();
        config.putAll(kafka.clientConfig("java"));
        config.put("application.id", "billing");
        config.put("group.protocol", "streams");
        config.put("state.dir", folder.toString());
        try (KafkaStreams streams = new KafkaStreams(builder.build(), config)) {
            streams.start();
            kafka.produce("orders", "first");
            assertEquals("first", kafka.expect("invoices", 1, with -> with.timeout(Duration.ofMinutes(1))).get(0).value());
            Broker.StreamsGroup group = kafka.streamsGroup("billing");
            assertEquals(List.of("orders"), group.sourceTopics());
            assertEquals(1, group.members().size());
            assertEquals(List.of(List.of(0L, 1L)), List.copyOf(group.members().get(0).active().values()));
            kafka.forceRebalance("billing");
            assertTrue(kafka.streamsGroup("billing").epoch() > group.epoch());
        }
    }

    private static void poll(KafkaShareConsumer<String, String> consumer, int count) {
        List<ConsumerRecord<String, String>> polled = new ArrayList<>();
        while (polled.size() < count) {
            consumer.poll(Duration.ofSeconds(1)).forEach(polled::add);
        }
    }
}
