import java.lang.reflect.Method;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;

/**
 * Kafka's consumer of any version since 0.9: what newer ones have is looked for by reflection.
 *
 *     OldConsumer BOOTSTRAP COUNT TOPIC:FORMAT ...           there are COUNT records in all of them together
 *     OldConsumer BOOTSTRAP COUNT GROUP TOPIC:FORMAT ...     the same, and again as a member of a group, which commits
 */
public final class OldConsumer {
    private OldConsumer() {}

    public static void main(String[] arguments) throws Exception {
        boolean member = !arguments[2].contains(":");
        List<String> topics = List.of(arguments).subList(member ? 3 : 2, arguments.length);
        read(arguments[0], Integer.parseInt(arguments[1]), null, topics);
        if (member) read(arguments[0], Integer.parseInt(arguments[1]), arguments[2], topics);
    }

    private static void read(String bootstrap, int count, String group, List<String> topics) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        properties.put("value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        properties.put("enable.auto.commit", "false");
        properties.put("auto.offset.reset", "earliest");
        properties.put("group.id", group == null ? "old-client" : group);
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<byte[], byte[]>(properties);
        List<TopicPartition> partitions = new ArrayList<TopicPartition>();
        Map<String, String> formats = new HashMap<String, String>();
        for (String topic : topics) {
            formats.put(topic.split(":")[0], topic.split(":")[1]);
            for (int i = 0; i < Expected.PARTITIONS; i++) partitions.add(new TopicPartition(topic.split(":")[0], i));
        }
        if (group == null) {
            take(consumer, "assign", partitions);
            for (TopicPartition partition : partitions) consumer.seek(partition, 0);
        } else {
            take(consumer, "subscribe", new ArrayList<String>(formats.keySet()));
        }
        Expected expected = new Expected();
        long deadline = System.currentTimeMillis() + 90000;
        while (expected.count() < count) {
            if (System.currentTimeMillis() > deadline) throw new AssertionError("only " + expected);
            for (ConsumerRecord<byte[], byte[]> record : poll(consumer)) {
                String format = formats.get(record.topic());
                expected.take(record.topic(), record.partition(), record.key(), record.value(), time(record), format);
            }
        }
        if (group != null) consumer.commitSync();
        consumer.close();
    }

    private static void take(KafkaConsumer<byte[], byte[]> consumer, String method, List<?> what) throws Exception {
        try {
            KafkaConsumer.class.getMethod(method, Collection.class).invoke(consumer, what);
        } catch (NoSuchMethodException before_0_10) {
            KafkaConsumer.class.getMethod(method, List.class).invoke(consumer, what);
        }
    }

    @SuppressWarnings("unchecked")
    private static ConsumerRecords<byte[], byte[]> poll(KafkaConsumer<byte[], byte[]> consumer) throws Exception {
        try {
            Method poll = KafkaConsumer.class.getMethod("poll", Duration.class);
            return (ConsumerRecords<byte[], byte[]>) poll.invoke(consumer, Duration.ofMillis(500));
        } catch (NoSuchMethodException before_2_0) {
            return (ConsumerRecords<byte[], byte[]>)
                KafkaConsumer.class.getMethod("poll", long.class).invoke(consumer, 500L);
        }
    }

    private static Long time(ConsumerRecord<byte[], byte[]> record) throws Exception {
        try {
            return (Long) ConsumerRecord.class.getMethod("timestamp").invoke(record);
        } catch (NoSuchMethodException before_0_10) {
            return null;
        }
    }
}
