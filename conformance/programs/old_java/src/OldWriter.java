import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;

/**
 * Kafka's producer of any version since 0.8.2: what newer ones have is looked for by reflection.
 *
 *     OldWriter BOOTSTRAP WRITER TOPIC:CODEC:IDEMPOTENT ...     the topics must be there
 */
public final class OldWriter {
    private OldWriter() {}

    public static void main(String[] arguments) throws Exception {
        for (String topic : List.of(arguments).subList(2, arguments.length)) {
            write(arguments[0], arguments[1], topic.split(":"));
        }
    }

    private static void write(String bootstrap, String writer, String[] topic) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        properties.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        properties.put("compression.type", topic[1]);
        properties.put("enable.idempotence", topic[2]);
        properties.put("acks", "all");
        properties.put("linger.ms", "20");
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<byte[], byte[]>(properties);
        List<Future<RecordMetadata>> sent = new ArrayList<Future<RecordMetadata>>();
        for (int i = 0; i < Expected.COUNT; i++) sent.add(producer.send(record(topic[0], writer, i)));
        long[] last = {-1, -1, -1};
        for (int i = 0; i < sent.size(); i++) {
            RecordMetadata answer = sent.get(i).get();
            Expected.same("the partition", i % Expected.PARTITIONS, answer.partition());
            if (last[answer.partition()] >= 0) {
                Expected.same("the offset", last[answer.partition()] + 1, answer.offset());
            }
            last[answer.partition()] = answer.offset();
        }
        producer.close();
    }

    @SuppressWarnings("unchecked")
    private static ProducerRecord<byte[], byte[]> record(String topic, String writer, int i) throws Exception {
        byte[] key = Expected.key(writer, i);
        byte[] value = Expected.value(writer, i);
        try {
            return (ProducerRecord<byte[], byte[]>) ProducerRecord.class
                .getConstructor(String.class, Integer.class, Long.class, Object.class, Object.class)
                .newInstance(topic, i % Expected.PARTITIONS, Expected.timestamp(i), key, value);
        } catch (NoSuchMethodException before_0_10) {
            return new ProducerRecord<byte[], byte[]>(topic, i % Expected.PARTITIONS, key, value);
        }
    }
}
