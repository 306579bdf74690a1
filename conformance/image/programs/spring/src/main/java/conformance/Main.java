package conformance;

import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.boot.autoconfigure.kafka.KafkaConnectionDetails;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.boot.testcontainers.service.connection.ServiceConnection;
import org.springframework.context.annotation.Bean;
import org.springframework.kafka.core.KafkaTemplate;
import org.testcontainers.kafka.KafkaContainer;
import org.testcontainers.utility.DockerImageName;

/** Starts the image as a bean, writes a record to it, prints where clients connect, and ends when stdin ends. */
@SpringBootApplication
public class Main {
    @Bean
    @ServiceConnection
    KafkaContainer kafka() {
        return new KafkaContainer(DockerImageName.parse("minibroker:8.0.0").asCompatibleSubstituteFor("apache/kafka"));
    }

    public static void main(String[] arguments) throws Exception {
        var builder = new SpringApplicationBuilder(Main.class).properties(
            "spring.main.banner-mode=off", "logging.level.root=error"); // stdout has only the address
        try (var context = builder.run()) {
            context.getBean(KafkaTemplate.class).send("of-spring", "written").get();
            System.out.println(String.join(",", context.getBean(KafkaConnectionDetails.class).getBootstrapServers()));
            System.in.readAllBytes();
        }
    }
}
