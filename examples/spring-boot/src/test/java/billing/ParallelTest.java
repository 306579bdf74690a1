package billing;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.Map;
import minibroker.Broker;
import minibroker.MinibrokerTest;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.parallel.Execution;
import org.junit.jupiter.api.parallel.ExecutionMode;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

@MinibrokerTest(shared = true)
@Execution(ExecutionMode.CONCURRENT)
class ParallelTest {
    @ParameterizedTest
    @ValueSource(strings = {"first", "second", "third"})
    void eachHasATopicOfItsOwn(String value, Broker kafka) throws Exception {
        String topic = kafka.topic();

        Map<String, Object> config = Map.of("bootstrap.servers", kafka.bootstrapServers());
        try (var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>(topic, value)).get();
        }

        assertThat(kafka.expect(topic).get(0).value()).isEqualTo(value);
    }
}
