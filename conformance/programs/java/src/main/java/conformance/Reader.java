package conformance;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Reads all topics at once, by assignment, and stops at the first difference. */
final class Reader {
    private final Map<TopicPartition, List<Specified>> expected = new HashMap<>();
    private final Map<TopicPartition, Long> next = new HashMap<>();
    private int missing;

    Reader(String prefix, List<Specified> records) {
        for (String name : Main.TOPICS) {
            for (Specified record : records) {
                TopicPartition where = new TopicPartition(prefix + "-" + name, record.partition);
                expected.computeIfAbsent(where, ignored -> new ArrayList<>()).add(record);
            }
        }
        missing = records.size() * Main.TOPICS.size();
    }

    void read(String bootstrap) throws Differs {
        Map<String, Object> configs =
            Map.of("bootstrap.servers", bootstrap, "auto.offset.reset", "none", "enable.auto.commit", false);
        try (KafkaConsumer<byte[], byte[]> consumer =
            new KafkaConsumer<>(configs, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            compareOffsets(consumer);
            consumer.assign(expected.keySet());
            consumer.seekToBeginning(expected.keySet());
            long deadline = System.currentTimeMillis() + Main.PATIENCE_MS;
            while (missing > 0) {
                Differs.unless(System.currentTimeMillis() < deadline, "%d records did not come: %s", missing, next);
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                    compare(record);
                }
            }
        }
    }

    private void compareOffsets(KafkaConsumer<byte[], byte[]> consumer) throws Differs {
        Map<TopicPartition, Long> starts = consumer.beginningOffsets(expected.keySet());
        Map<TopicPartition, Long> ends = consumer.endOffsets(expected.keySet());
        for (TopicPartition where : expected.keySet()) {
            long count = expected.get(where).size();
            Differs.unless(
                starts.get(where) == 0 && ends.get(where) == count,
                "%s: offsets %d to %d, expected 0 to %d", where, starts.get(where), ends.get(where), count);
        }
    }

    private void compare(ConsumerRecord<byte[], byte[]> record) throws Differs {
        TopicPartition where = new TopicPartition(record.topic(), record.partition());
        long offset = next.merge(where, 1L, Long::sum) - 1;
        Differs.unless(record.offset() == offset, "%s: offset %d, %d was expected", where, record.offset(), offset);
        Differs.unless(offset < expected.get(where).size(), "%s: more records than expected", where);
        expected.get(where).get((int) offset).compare(record);
        missing--;
    }
}
