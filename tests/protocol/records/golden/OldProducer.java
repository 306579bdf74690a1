// Sends the records of old_messages.json by whatever kafka-clients is on the class path; old_messages.py runs it.
//     java -cp "jars/*" OldProducer.java BOOTSTRAP CODEC small|large

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

public class OldProducer {
    static final long T = 1700000000000L;

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("compression.type", arguments[1]);
        properties.put("acks", "1");
        properties.put("linger.ms", "2000");
        properties.put("batch.size", "1000000");
        properties.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        properties.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<byte[], byte[]>(properties);
        List<Future<?>> sent = new ArrayList<Future<?>>();
        if (arguments[2].equals("small")) {
            sent.add(producer.send(record(T, bytes("key"), bytes("value"))));
            sent.add(producer.send(record(T + 1, null, bytes("no key"))));
            sent.add(producer.send(record(T + 2, bytes("no value"), null)));
            sent.add(producer.send(record(T - 5, bytes(""), bytes(""))));
            sent.add(producer.send(record(T + 100000, bytes("cl\u00e9"), bytes("x".repeat(300)))));
        } else {
            for (int i = 0; i < 3; i++) sent.add(producer.send(record(T, null, bytes("minibroker ".repeat(1000)))));
        }
        for (Future<?> future : sent) future.get();
        producer.close();
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    @SuppressWarnings("unchecked")
    static ProducerRecord<byte[], byte[]> record(long timestamp, byte[] key, byte[] value) throws Exception {
        try {
            return (ProducerRecord<byte[], byte[]>) ProducerRecord.class
                .getConstructor(String.class, Integer.class, Long.class, Object.class, Object.class)
                .newInstance("golden", 0, timestamp, key, value);
        } catch (NoSuchMethodException before_0_10) {
            return new ProducerRecord<byte[], byte[]>("golden", 0, key, value);
        }
    }
}
