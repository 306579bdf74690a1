package conformance;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Creates the topics and writes the records to each. */
final class Writer {
    private Writer() {}

    static void write(String bootstrap, String prefix, List<Specified> records) throws Exception {
        createTopics(bootstrap, prefix);
        for (String name : Main.TOPICS) {
            write(bootstrap, name, prefix + "-" + name, records);
        }
    }

    private static void createTopics(String bootstrap, String prefix) throws Exception {
        List<NewTopic> topics = new ArrayList<>();
        for (String name : Main.TOPICS) {
            topics.add(
                new NewTopic(prefix + "-" + name, Optional.of(Main.PARTITIONS), Optional.empty())
                    .configs(Map.of("retention.ms", "-1")));
        }
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(topics).all().get();
            awaitLeaders(admin, topics);
        }
    }

    /**
     * Kafka's brokers learn of a topic after its controller has answered. An idempotent producer that pipelines batches in
     * between may have the second accepted after the first was not, and never gets the first in.
     */
    private static void awaitLeaders(Admin admin, List<NewTopic> topics) throws Exception {
        Map<TopicPartition, OffsetSpec> ends = new HashMap<>();
        for (NewTopic topic : topics) {
            for (int partition = 0; partition < Main.PARTITIONS; partition++) {
                ends.put(new TopicPartition(topic.name(), partition), OffsetSpec.latest());
            }
        }
        admin.listOffsets(ends).all().get(); // asks again until the leaders are there
    }

    private static void write(String bootstrap, String name, String topic, List<Specified> records) throws Exception {
        boolean plain = name.equals("plain");
        Map<String, Object> configs =
            Map.of(
                "bootstrap.servers", bootstrap,
                "compression.type", plain ? "none" : name,
                "enable.idempotence", !plain,
                "acks", plain ? "1" : "all",
                "linger.ms", 20);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer =
            new KafkaProducer<>(configs, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (Specified record : records) {
                sent.add(producer.send(record.toProduce(topic)));
            }
        }
        long[] next = new long[Main.PARTITIONS];
        for (Future<RecordMetadata> each : sent) {
            RecordMetadata answer = each.get();
            long expected = next[answer.partition()]++;
            Differs.unless(
                answer.offset() == expected, "%s: acknowledged as %s, offset %d was expected", topic, answer, expected);
        }
    }
}
