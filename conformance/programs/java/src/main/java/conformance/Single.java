package conformance;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Sends or receives one record, and tells what became of it: for tests with faults. */
final class Single {
    private Single() {}

    /** "offset N", or the class of the error that the producer reports. */
    static String send(String bootstrap, String topic, String value) throws InterruptedException {
        Map<String, Object> configs = Map.of("bootstrap.servers", bootstrap, "delivery.timeout.ms", 60_000);
        try (KafkaProducer<String, String> producer =
            new KafkaProducer<>(configs, new StringSerializer(), new StringSerializer())) {
            return "offset " + producer.send(new ProducerRecord<>(topic, 0, null, value)).get().offset();
        } catch (ExecutionException failure) {
            return failure.getCause().getClass().getSimpleName();
        }
    }

    /** "value V" of the first record of partition 0, or the class and the cause of the error that `poll` throws. */
    static String receive(String bootstrap, String topic) {
        Map<String, Object> configs = Map.of("bootstrap.servers", bootstrap, "enable.auto.commit", false);
        try (KafkaConsumer<String, String> consumer =
            new KafkaConsumer<>(configs, new StringDeserializer(), new StringDeserializer())) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long deadline = System.currentTimeMillis() + Main.PATIENCE_MS;
            while (System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(1))) {
                    return "value " + record.value();
                }
            }
            return "nothing";
        } catch (KafkaException failure) {
            return failure.getClass().getSimpleName() + " of " + failure.getCause();
        }
    }
}
