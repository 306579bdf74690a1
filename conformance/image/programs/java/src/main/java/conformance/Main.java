package conformance;

import java.util.ArrayList;
import java.util.List;
import org.testcontainers.containers.GenericContainer;
import org.testcontainers.containers.Network;
import org.testcontainers.kafka.ConfluentKafkaContainer;
import org.testcontainers.kafka.KafkaContainer;
import org.testcontainers.utility.DockerImageName;

/** Starts the image by testcontainers-java, prints where clients connect, and stops it when stdin ends. */
public final class Main {
    private static final DockerImageName IMAGE = DockerImageName.parse("minibroker:8.0.0");
    private static final List<GenericContainer<?>> RUNNING = new ArrayList<>();

    private Main() {}

    public static void main(String[] arguments) throws Exception {
        for (String kind : arguments) {
            System.out.println(start(kind));
        }
        System.in.readAllBytes();
        RUNNING.forEach(GenericContainer::stop);
    }

    private static String start(String kind) {
        if (kind.equals("confluent")) {
            var kafka = new ConfluentKafkaContainer(IMAGE.asCompatibleSubstituteFor("confluentinc/cp-kafka"));
            kafka.withNetwork(Network.newNetwork()).withListener("broker:19092");
            return started(kafka).getBootstrapServers();
        }
        return started(new KafkaContainer(IMAGE.asCompatibleSubstituteFor(kind))).getBootstrapServers();
    }

    private static <T extends GenericContainer<T>> T started(T container) {
        RUNNING.add(container);
        container.start();
        return container;
    }
}
