package conformance;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Calls every method of Kafka's Java {@link Admin}, and says what each was expected to answer.
 *
 * <pre>
 * EveryMethod BOOTSTRAP PREFIX
 * </pre>
 *
 * With three nodes or more leadership moves, with several log directories logs do. Whoever adds steps for methods that
 * are left out takes their names from {@link #LEFT_OUT}: a name that stands there and is called is an error, and so is a
 * method that neither is called nor stands there. Exits 0 and prints one line, or prints what differed and exits 1.
 */
public final class EveryMethod {
    private static final Logger LOG = LoggerFactory.getLogger(EveryMethod.class);

    /** By why they are not called here. */
    private static final Map<String, List<String>> LEFT_OUT =
        Map.of(
            "of groups",
            List.of(
                "alterConsumerGroupOffsets",
                "deleteConsumerGroupOffsets",
                "deleteConsumerGroups",
                "describeClassicGroups",
                "describeConsumerGroups",
                "listConsumerGroupOffsets",
                "listConsumerGroups",
                "listGroups",
                "removeMembersFromConsumerGroup"),
            "of share groups and streams groups",
            List.of(
                "alterShareGroupOffsets",
                "alterStreamsGroupOffsets",
                "deleteShareGroupOffsets",
                "deleteShareGroups",
                "deleteStreamsGroupOffsets",
                "deleteStreamsGroups",
                "describeShareGroups",
                "describeStreamsGroups",
                "listShareGroupOffsets",
                "listStreamsGroupOffsets"),
            "of transactions",
            List.of(
                "abortTransaction",
                "describeProducers",
                "describeTransactions",
                "fenceProducers",
                "forceTerminateTransaction",
                "listTransactions"),
            "newer than Apache Kafka 4.3",
            List.of("unregisterController"),
            "of the client alone",
            List.of("registerMetricForSubscription", "unregisterMetricFromSubscription"));

    private EveryMethod() {}

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        String prefix = arguments[1];
        Admin real = Admin.create(Map.of("bootstrap.servers", bootstrap, "enable.metrics.push", "true"));
        try {
            Recorded recorded = new Recorded(real);
            Admin admin = recorded.admin;
            new OfTheCluster(admin).exercise();
            new OfTopics(admin, bootstrap, prefix + "-topics").exercise();
            new OfPlaces(admin, bootstrap, prefix + "-places").exercise();
            new OfConfigs(admin, prefix + "-configs").exercise();
            new OfSecurity(admin, prefix).exercise();
            Differs.unless(!admin.metrics().isEmpty(), "the client has metrics of its own");
            admin.close(Duration.ofSeconds(5));
            int count = recorded.complete(LEFT_OUT.values().stream().flatMap(List::stream).toList());
            System.out.println(count + " methods were called");
        } catch (Differs difference) {
            LOG.debug("where", difference);
            System.out.println(difference.getMessage());
            System.exit(1);
        } finally {
            real.close(Duration.ofSeconds(5));
        }
    }
}
