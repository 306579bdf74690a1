package harness;

import com.yammer.metrics.core.MetricName;
import java.util.*;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.metrics.Gauge;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.server.metrics.KafkaYammerMetrics;

/** The metrics of a controller that an admin client can count, and some of a broker, in Kafka's registries. */
final class Gauges {
    private static MetricName name(String name) { return KafkaYammerMetrics.getMetricName("kafka.controller", "KafkaController", name); }
    private static final MetricName UNDER_REPLICATED = KafkaYammerMetrics.getMetricName("kafka.server", "ReplicaManager", "UnderReplicatedPartitions");
    private static final MetricName EXPIRED = KafkaYammerMetrics.getMetricName("kafka.network", "SocketServer", "ExpiredConnectionsKilledCount");

    static void register(Cluster cluster) {
        register(cluster, "ActiveControllerCount", () -> 1);
        register(cluster, "GlobalTopicCount", () -> cluster.admin().listTopics(new ListTopicsOptions().listInternal(true)).names().get().size());
        register(cluster, "GlobalPartitionCount", () -> partitions(cluster).size());
        register(cluster, "OfflinePartitionsCount", () -> (int) partitions(cluster).stream().filter(p -> leader(p) < 0).count());
        register(cluster, UNDER_REPLICATED, () -> (int) partitions(cluster).stream().filter(p -> p.isr().size() < p.replicas().size()).count());
        register(cluster, EXPIRED, () -> Double.valueOf(cluster.command("authentications expired")));
        register(cluster, "PreferredReplicaImbalanceCount", () -> (int) partitions(cluster).stream().filter(p -> leader(p) != p.replicas().get(0).id()).count());
    }

    /** How clients authenticated with the nodes of a cluster, as the metrics of one of them. */
    static void register(Cluster cluster, Metrics metrics) {
        Map.of("successful", "succeeded", "failed", "failed").forEach((kind, counted) -> {
            org.apache.kafka.common.MetricName name = metrics.metricName(kind + "-authentication-total", "socket-server-metrics");
            metrics.removeMetric(name);
            metrics.addMetric(name, (Gauge<Double>) (config, now) -> Double.valueOf(cluster.command("authentications " + counted)));
        });
    }

    private static void register(Cluster cluster, String name, Callable<Integer> count) { register(cluster, name(name), count); }

    private static <T> void register(Cluster cluster, MetricName name, Callable<T> count) {
        KafkaYammerMetrics.defaultRegistry().removeMetric(name);
        cluster.gauges.add(name);
        KafkaYammerMetrics.defaultRegistry().newGauge(name, new com.yammer.metrics.core.Gauge<T>() {
            @Override public T value() {
                try { return count.call(); }
                catch (Exception error) { throw new IllegalStateException(error); }
            }
        });
    }

    static void remove(Cluster cluster) { cluster.gauges.forEach(KafkaYammerMetrics.defaultRegistry()::removeMetric); }

    private static int leader(TopicPartitionInfo partition) {
        Node leader = partition.leader();
        return leader == null ? -1 : leader.id();
    }

    private static List<TopicPartitionInfo> partitions(Cluster cluster) throws Exception {
        List<TopicPartitionInfo> found = new ArrayList<>();
        Set<String> names = cluster.admin().listTopics(new ListTopicsOptions().listInternal(true)).names().get();
        for (KafkaFuture<TopicDescription> topic : cluster.admin().describeTopics(names).topicNameValues().values())
            try { found.addAll(topic.get().partitions()); }
            catch (ExecutionException error) { if (!(error.getCause() instanceof UnknownTopicOrPartitionException)) throw error; } // deleted since
        return found;
    }
}
