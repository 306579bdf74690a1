package harness;

import java.io.File;
import java.io.IOException;
import java.util.*;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.requests.ListOffsetsRequest;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.MockScheduler;
import org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile;
import org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile;
import org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache;
import org.apache.kafka.storage.internals.log.*;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/** Stand-ins for logs, which answer by an admin client, or with Kafka's own classes by the files, which have Kafka's formats. */
final class Logs {
    static Object manager(Object self, Cluster cluster, int node) {
        return Bridge.part(cluster, self, "logs", () -> Internals.mock(kafka.log.LogManager.class, "broker.logManager", Map.of(
            "getLog", a -> logOf(cluster, node, (TopicPartition) a[0]),
            "getLog$default$2", a -> false,
            "logsByTopic", a -> CollectionConverters.asScala(ofTopic(cluster, node, (String) a[0])).toSeq(),
            "cleaner", a -> Internals.mock(LogCleaner.class, "broker.logManager.cleaner", Map.of(
                "awaitCleaned", b -> awaitCleaned(cluster, (TopicPartition) b[0], (long) b[1], (long) b[2]))),
            "liveLogDirs", a -> CollectionConverters.asScala(cluster.directories()).toSeq())));
    }

    static Option<UnifiedLog> logOf(Cluster cluster, int node, TopicPartition tp) throws Exception {
        Optional<TopicPartitionInfo> info = Bridge.partition(cluster, tp.topic(), tp.partition());
        if (info.isEmpty() || info.get().replicas().stream().noneMatch(r -> r.id() == node)) return Option.empty();
        return Option.apply(log(cluster, tp));
    }

    private static List<UnifiedLog> ofTopic(Cluster cluster, int node, String name) throws Exception {
        List<UnifiedLog> logs = new ArrayList<>();
        Optional<TopicDescription> topic = Bridge.topic(cluster, name);
        if (topic.isPresent())
            for (TopicPartitionInfo each : topic.get().partitions()) {
                Option<UnifiedLog> log = logOf(cluster, node, new TopicPartition(name, each.partition()));
                if (log.isDefined()) logs.add(log.get());
            }
        return logs;
    }

    static UnifiedLog log(Cluster cluster, TopicPartition tp) {
        Map<String, Internals.Handler> handlers = new HashMap<>();
        handlers.put("topicPartition", a -> tp);
        handlers.put("name", a -> tp.toString());
        handlers.put("topicId", a -> Optional.ofNullable(Bridge.topicIds(cluster).get(tp.topic())));
        handlers.put("logStartOffset", a -> offset(cluster, tp, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED));
        handlers.put("logEndOffset", a -> offset(cluster, tp, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED));
        handlers.put("highWatermark", handlers.get("logEndOffset"));
        handlers.put("lastStableOffset", a -> offset(cluster, tp, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED));
        handlers.put("fetchOffsetByTimestamp", a -> byTimestamp(cluster, tp, (long) a[0]));
        handlers.put("config", a -> config(cluster, tp));
        handlers.put("producerStateManager", a -> Internals.mock(ProducerStateManager.class, "log.producerStateManager", Map.of(
            "activeProducers", b -> producers(cluster, tp))));
        handlers.put("dir", a -> directory(cluster, tp));
        handlers.put("parentDirFile", a -> directory(cluster, tp).getParentFile());
        handlers.put("parentDir", a -> directory(cluster, tp).getParent());
        handlers.put("logSegments", a -> segments(cluster, tp));
        handlers.put("numberOfSegments", a -> segments(cluster, tp).size());
        handlers.put("size", a -> segments(cluster, tp).stream().mapToLong(LogSegment::size).sum());
        handlers.put("roll", a -> {
            cluster.command("roll " + tp.topic() + " " + tp.partition());
            List<LogSegment> segments = segments(cluster, tp);
            return segments.get(segments.size() - 1);
        });
        handlers.put("leaderEpochCache", a -> epochs(cluster, tp));
        handlers.put("latestEpoch", a -> epochs(cluster, tp).latestEpoch());
        return Internals.mock(UnifiedLog.class, "log", handlers);
    }

    private static long offset(Cluster cluster, TopicPartition tp, OffsetSpec spec, IsolationLevel level) throws Exception {
        return cluster.admin().listOffsets(Map.of(tp, spec), new ListOffsetsOptions(level)).partitionResult(tp).get().offset();
    }

    private static OffsetResultHolder byTimestamp(Cluster cluster, TopicPartition tp, long timestamp) throws Exception {
        OffsetSpec spec = timestamp == ListOffsetsRequest.EARLIEST_TIMESTAMP ? OffsetSpec.earliest()
            : timestamp == ListOffsetsRequest.LATEST_TIMESTAMP ? OffsetSpec.latest()
            : timestamp == ListOffsetsRequest.MAX_TIMESTAMP ? OffsetSpec.maxTimestamp()
            : OffsetSpec.forTimestamp(timestamp);
        ListOffsetsResult.ListOffsetsResultInfo found = cluster.admin().listOffsets(Map.of(tp, spec)).partitionResult(tp).get();
        return new OffsetResultHolder(found.offset() < 0 ? Optional.empty()
            : Optional.of(new FileRecords.TimestampAndOffset(found.timestamp(), found.offset(), found.leaderEpoch())));
    }

    private static LogConfig config(Cluster cluster, TopicPartition tp) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, tp.topic());
        Map<String, String> values = new HashMap<>();
        Set<String> own = new HashSet<>();
        for (ConfigEntry entry : cluster.admin().describeConfigs(List.of(resource)).all().get().get(resource).entries()) {
            if (LogConfig.configNames().contains(entry.name()) && entry.value() != null) values.put(entry.name(), entry.value());
            if (entry.source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG) own.add(entry.name());
        }
        return new LogConfig(values, own);
    }

    private static Map<Long, ProducerStateEntry> producers(Cluster cluster, TopicPartition tp) throws Exception {
        return cluster.admin().describeProducers(List.of(tp)).partitionResult(tp).get().activeProducers().stream().collect(Collectors.toMap(
            ProducerState::producerId, p -> new ProducerStateEntry(p.producerId(), (short) p.producerEpoch(), p.coordinatorEpoch().orElse(-1),
                p.lastTimestamp(), p.currentTransactionStartOffset())));
    }

    // ---- the files

    /** Whether the cleaner's checkpoint comes to an offset in time. */
    private static boolean awaitCleaned(Cluster cluster, TopicPartition tp, long offset, long timeoutMs) throws Exception {
        long end = System.currentTimeMillis() + timeoutMs;
        File file = new File(directory(cluster, tp).getParentFile(), "cleaner-offset-checkpoint");
        do {
            if (file.exists() && new OffsetCheckpointFile(file, null).read().getOrDefault(tp, 0L) >= offset) return true;
            Thread.sleep(50);
        } while (System.currentTimeMillis() < end);
        return false;
    }

    private static File directory(Cluster cluster, TopicPartition tp) throws IOException {
        for (File parent : cluster.directories()) {
            File found = new File(parent, tp.toString());
            if (found.exists()) return found;
        }
        throw new IOException("no directory of " + tp);
    }

    private static List<LogSegment> segments(Cluster cluster, TopicPartition tp) throws Exception {
        LogConfig config = config(cluster, tp);
        File directory = directory(cluster, tp);
        List<LogSegment> segments = new ArrayList<>();
        for (String name : new TreeSet<>(List.of(directory.list())))
            if (name.endsWith(".log"))
                segments.add(LogSegment.open(directory, Long.parseLong(name.substring(0, name.length() - 4)), config, Time.SYSTEM, true, 0, false, ""));
        return segments;
    }

    private static LeaderEpochFileCache epochs(Cluster cluster, TopicPartition tp) throws IOException {
        return new LeaderEpochFileCache(tp, new LeaderEpochCheckpointFile(directory(cluster, tp), null), new MockScheduler(new org.apache.kafka.server.util.MockTime()));
    }
}
