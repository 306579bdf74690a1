package conformance;

import static org.apache.kafka.clients.admin.AlterConfigOp.OpType.APPEND;
import static org.apache.kafka.clients.admin.AlterConfigOp.OpType.DELETE;
import static org.apache.kafka.clients.admin.AlterConfigOp.OpType.SET;
import static org.apache.kafka.clients.admin.AlterConfigOp.OpType.SUBTRACT;

import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.CreateTopicsResult;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidPartitionsException;
import org.apache.kafka.common.errors.InvalidReplicaAssignmentException;
import org.apache.kafka.common.errors.InvalidReplicationFactorException;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicIdException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.serialization.StringSerializer;

/** Creates, describes, changes and deletes a topic; every step says what it expected. */
final class Administration {
    private final Admin admin;
    private final String bootstrap;
    private final String topic;
    private final ConfigResource resource;
    private Uuid id;

    private Administration(Admin admin, String bootstrap, String topic) {
        this.admin = admin;
        this.bootstrap = bootstrap;
        this.topic = topic;
        this.resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
    }

    static String exercise(String bootstrap, String topic) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            Administration steps = new Administration(admin, bootstrap, topic);
            steps.cluster();
            steps.refusals();
            steps.create();
            steps.describe();
            steps.configs();
            steps.partitions();
            steps.offsets();
            steps.delete();
        }
        return "8 steps of administration";
    }

    private void cluster() throws Exception {
        DescribeClusterResult cluster = admin.describeCluster();
        Differs.unless(cluster.nodes().get().size() == 1, "one node was expected: %s", cluster.nodes().get());
        Differs.unless(
            cluster.nodes().get().contains(cluster.controller().get()), "controller %s", cluster.controller().get());
        Differs.unless(!cluster.clusterId().get().isEmpty(), "a cluster id was expected");
    }

    private void refusals() throws Exception {
        refused(InvalidTopicException.class, new NewTopic("a b", 1, (short) 1));
        refused(InvalidPartitionsException.class, new NewTopic(topic, 0, (short) 1));
        refused(InvalidReplicationFactorException.class, new NewTopic(topic, 1, (short) 9));
        refused(InvalidReplicaAssignmentException.class, new NewTopic(topic, Map.of(0, List.of(99))));
        refused(
            InvalidConfigurationException.class, new NewTopic(topic, 1, (short) 1).configs(Map.of("no.such", "config")));
    }

    private void refused(Class<? extends Exception> expected, NewTopic wrong) throws Exception {
        fails(expected, admin.createTopics(List.of(wrong)).all());
    }

    private static void fails(Class<? extends Exception> expected, KafkaFuture<?> future) throws Exception {
        try {
            future.get();
        } catch (ExecutionException failure) {
            Differs.unless(
                expected.isInstance(failure.getCause()), "%s was expected: %s", expected.getName(), failure.getCause());
            return;
        }
        throw new Differs("%s was expected", expected.getName());
    }

    private void create() throws Exception {
        NewTopic wanted = new NewTopic(topic, 2, (short) 1).configs(Map.of("retention.ms", "12345"));
        admin.createTopics(List.of(wanted), new CreateTopicsOptions().validateOnly(true)).all().get();
        Differs.unless(!admin.listTopics().names().get().contains(topic), "%s was only to be validated", topic);
        CreateTopicsResult created = admin.createTopics(List.of(wanted));
        id = created.topicId(topic).get();
        Differs.unless(created.numPartitions(topic).get() == 2, "%d partitions", created.numPartitions(topic).get());
        Differs.unless(
            created.replicationFactor(topic).get() == 1, "replication factor %d", created.replicationFactor(topic).get());
        expectConfig(created.config(topic).get(), "retention.ms", "12345", ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG);
        fails(TopicExistsException.class, admin.createTopics(List.of(wanted)).all());
    }

    private void describe() throws Exception {
        TopicDescription byName = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
        TopicDescription byId =
            admin.describeTopics(TopicCollection.ofTopicIds(List.of(id))).allTopicIds().get().get(id);
        for (TopicDescription each : List.of(byName, byId)) {
            Differs.unless(
                each.name().equals(topic) && each.topicId().equals(id) && !each.isInternal(), "described as %s", each);
            Differs.unless(each.partitions().size() == 2, "2 partitions were expected: %s", each);
            Differs.unless(
                each.partitions().stream().allMatch(
                    place -> place.leader() != null && place.replicas().equals(place.isr()) && place.isr().size() == 1),
                "a leader with itself as the only replica was expected: %s", each);
        }
        Differs.unless(
            admin.listTopics().namesToListings().get().get(topic).topicId().equals(id), "%s is not listed", topic);
        fails(UnknownTopicOrPartitionException.class, admin.describeTopics(List.of(topic + "x")).allTopicNames());
        fails(
            UnknownTopicIdException.class,
            admin.describeTopics(TopicCollection.ofTopicIds(List.of(new Uuid(1, 2)))).allTopicIds());
    }

    private void configs() throws Exception {
        alter(new AlterConfigOp(new ConfigEntry("retention.ms", "54321"), SET));
        alter(new AlterConfigOp(new ConfigEntry("cleanup.policy", "compact"), APPEND));
        expectConfig("retention.ms", "54321", ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG);
        expectConfig("cleanup.policy", "delete,compact", ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG);
        alter(new AlterConfigOp(new ConfigEntry("retention.ms", null), DELETE));
        alter(new AlterConfigOp(new ConfigEntry("cleanup.policy", "compact"), SUBTRACT));
        expectConfig("retention.ms", "604800000", ConfigEntry.ConfigSource.DEFAULT_CONFIG);
        expectConfig("cleanup.policy", "delete", ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG);
        AlterConfigOp wrong = new AlterConfigOp(new ConfigEntry("retention.ms", "long"), SET);
        fails(
            InvalidConfigurationException.class, admin.incrementalAlterConfigs(Map.of(resource, List.of(wrong))).all());
        ConfigResource unknown = new ConfigResource(ConfigResource.Type.TOPIC, topic + "x");
        fails(UnknownTopicOrPartitionException.class, admin.describeConfigs(List.of(unknown)).all());
    }

    private void alter(AlterConfigOp change) throws Exception {
        admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all().get();
    }

    private void expectConfig(String name, String value, ConfigEntry.ConfigSource source) throws Exception {
        expectConfig(admin.describeConfigs(List.of(resource)).all().get().get(resource), name, value, source);
    }

    private static void expectConfig(Config config, String name, String value, ConfigEntry.ConfigSource source)
        throws Differs {
        ConfigEntry entry = config.get(name);
        Differs.unless(
            entry.value().equals(value) && entry.source() == source, "%s=%s from %s expected: %s", name, value, source, entry);
    }

    private void partitions() throws Exception {
        admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(5))).all().get();
        fails(
            InvalidPartitionsException.class, admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(4))).all());
        int count = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size();
        Differs.unless(count == 5, "5 partitions were expected: %d", count);
    }

    private void offsets() throws Exception {
        long start = System.currentTimeMillis();
        try (KafkaProducer<String, String> producer =
            new KafkaProducer<>(
                Map.of("bootstrap.servers", bootstrap), new StringSerializer(), new StringSerializer())) {
            for (long timestamp : List.of(start, start + 2, start + 1)) {
                producer.send(new ProducerRecord<>(topic, 4, timestamp, "key", "value")).get();
            }
        }
        expectOffset(4, OffsetSpec.earliest(), 0, -1);
        expectOffset(4, OffsetSpec.latest(), 3, -1);
        expectOffset(4, OffsetSpec.maxTimestamp(), 1, start + 2);
        expectOffset(4, OffsetSpec.forTimestamp(start + 1), 1, start + 2);
        expectOffset(4, OffsetSpec.forTimestamp(start + 3), -1, -1);
        expectOffset(0, OffsetSpec.maxTimestamp(), -1, -1);
        expectOffset(0, OffsetSpec.latest(), 0, -1);
    }

    private void expectOffset(int partition, OffsetSpec asked, long offset, long timestamp) throws Exception {
        TopicPartition where = new TopicPartition(topic, partition);
        ListOffsetsResultInfo found = admin.listOffsets(Map.of(where, asked)).partitionResult(where).get();
        Differs.unless(
            found.offset() == offset && found.timestamp() == timestamp,
            "%s of %s: offset %d at %d was expected: %s", asked.getClass().getSimpleName(), where, offset, timestamp, found);
    }

    private void delete() throws Exception {
        admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all().get();
        Set<String> left = admin.listTopics().names().get();
        Differs.unless(!left.contains(topic), "%s is still there", topic);
        fails(
            UnknownTopicOrPartitionException.class,
            admin.deleteTopics(TopicCollection.ofTopicNames(List.of(topic))).all());
        fails(UnknownTopicIdException.class, admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all());
    }
}
