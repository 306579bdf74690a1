package conformance;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Copies a topic exactly once, with every other transaction aborted at first, and is fenced in the end. */
final class Transactions {
    private static final int RECORDS = 40;
    private static final int AT_A_TIME = 7;

    private final String bootstrap;
    private final String source;
    private final String target;
    private final String id;

    private Transactions(String bootstrap, String prefix) {
        this.bootstrap = bootstrap;
        source = prefix + "-source";
        target = prefix + "-target";
        id = prefix + "-copier";
    }

    static String exercise(String bootstrap, String prefix) throws Exception {
        Transactions copy = new Transactions(bootstrap, prefix);
        copy.createTopics();
        copy.writeSource();
        int aborted = copy.copyAll();
        copy.check();
        copy.beFenced();
        return String.format("copied %d records once, %d transactions aborted", RECORDS, aborted);
    }

    private void createTopics() throws Exception {
        List<NewTopic> topics = new ArrayList<>();
        Map<TopicPartition, OffsetSpec> ends = new HashMap<>();
        for (String name : List.of(source, target)) {
            topics.add(new NewTopic(name, Optional.of(1), Optional.empty()));
            ends.put(new TopicPartition(name, 0), OffsetSpec.latest());
        }
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(topics).all().get();
            admin.listOffsets(ends).all().get(); // asks again until the leaders are there
        }
    }

    private void writeSource() {
        try (KafkaProducer<String, String> producer = producer(Map.of())) {
            for (int number = 0; number < RECORDS; number++) {
                producer.send(new ProducerRecord<>(source, 0, null, Integer.toString(number)));
            }
        }
    }

    private int copyAll() {
        int aborted = 0;
        int copied = 0;
        boolean abort = true;
        try (KafkaProducer<String, String> producer = producer(Map.of("transactional.id", id));
                KafkaConsumer<String, String> consumer = consumer(Map.of("max.poll.records", AT_A_TIME))) {
            producer.initTransactions();
            consumer.subscribe(List.of(source));
            while (copied < RECORDS) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(500));
                if (records.isEmpty()) {
                    continue;
                }
                copyOnce(producer, consumer, records);
                if (abort) {
                    producer.abortTransaction();
                    consumer.seek(new TopicPartition(source, 0), copied);
                    aborted++;
                } else {
                    producer.commitTransaction();
                    copied += records.count();
                }
                abort = !abort;
            }
        }
        return aborted;
    }

    private void copyOnce(
            KafkaProducer<String, String> producer,
            KafkaConsumer<String, String> consumer,
            ConsumerRecords<String, String> records) {
        producer.beginTransaction();
        long next = 0;
        for (ConsumerRecord<String, String> record : records) {
            producer.send(new ProducerRecord<>(target, 0, null, "copy of " + record.value()));
            next = record.offset() + 1;
        }
        producer.flush();
        Map<TopicPartition, OffsetAndMetadata> offsets =
            Map.of(new TopicPartition(source, 0), new OffsetAndMetadata(next));
        producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
    }

    private void check() throws Differs {
        List<String> seen = new ArrayList<>();
        TopicPartition partition = new TopicPartition(target, 0);
        try (KafkaConsumer<String, String> consumer = consumer(Map.of())) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, 0);
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            while (consumer.position(partition) < end) {
                consumer.poll(Duration.ofMillis(500)).forEach(record -> seen.add(record.value()));
            }
            long committed = consumer.committed(java.util.Set.of(new TopicPartition(source, 0)))
                .get(new TopicPartition(source, 0)).offset();
            if (committed != RECORDS) {
                throw new Differs("committed is " + committed);
            }
        }
        for (int number = 0; number < Math.max(RECORDS, seen.size()); number++) {
            String expected = "copy of " + number;
            if (number >= seen.size() || !seen.get(number).equals(expected)) {
                throw new Differs("record " + number + " of " + seen);
            }
        }
    }

    private void beFenced() throws Differs {
        Map<String, Object> transactional = Map.of("transactional.id", id);
        try (KafkaProducer<String, String> older = producer(transactional);
                KafkaProducer<String, String> newer = producer(transactional)) {
            older.initTransactions();
            older.beginTransaction();
            older.send(new ProducerRecord<>(target, 0, null, "zombie"));
            older.flush();
            newer.initTransactions();
            newer.beginTransaction();
            newer.send(new ProducerRecord<>(target, 0, null, "mine"));
            newer.commitTransaction();
            older.commitTransaction();
            throw new Differs("a producer that was fenced has committed");
        } catch (ProducerFencedException | InvalidProducerEpochException expected) {
            return;
        }
    }

    private KafkaProducer<String, String> producer(Map<String, Object> more) {
        Map<String, Object> configs = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "acks", "all"));
        configs.putAll(more);
        return new KafkaProducer<>(configs, new StringSerializer(), new StringSerializer());
    }

    private KafkaConsumer<String, String> consumer(Map<String, Object> more) {
        Map<String, Object> configs =
            new HashMap<>(
                Map.of(
                    "bootstrap.servers", bootstrap,
                    "group.id", id,
                    "isolation.level", "read_committed",
                    "auto.offset.reset", "earliest",
                    "enable.auto.commit", "false"));
        configs.putAll(more);
        return new KafkaConsumer<>(configs, new StringDeserializer(), new StringDeserializer());
    }
}
