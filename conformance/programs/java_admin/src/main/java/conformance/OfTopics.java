package conformance;

import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.errors.InvalidPartitionsException;
import org.apache.kafka.common.errors.OffsetOutOfRangeException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.serialization.StringSerializer;

/** Topics, their partitions and their records. */
final class OfTopics {
    private final Admin admin;
    private final String bootstrap;
    private final String topic;

    OfTopics(Admin admin, String bootstrap, String topic) {
        this.admin = admin;
        this.bootstrap = bootstrap;
        this.topic = topic;
    }

    void exercise() throws Exception {
        create();
        describe();
        records();
        delete();
    }

    private void create() throws Exception {
        NewTopic wanted = new NewTopic(topic, 3, (short) 1).configs(Map.of("segment.ms", "54321"));
        admin.createTopics(List.of(wanted), new CreateTopicsOptions().validateOnly(true)).all().get();
        admin.createTopics(List.of(wanted)).all().get();
        Expect.failure(TopicExistsException.class, admin.createTopics(List.of(wanted)).all());
        admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(4))).all().get();
        Expect.failure(
            InvalidPartitionsException.class, admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(4))).all());
    }

    private void describe() throws Exception {
        Expect.eventually(
            () -> admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get(),
            names -> names.contains(topic),
            "the topics");
        DescribeTopicsOptions options =
            new DescribeTopicsOptions().includeAuthorizedOperations(true).partitionSizeLimitPerResponse(1);
        TopicDescription described =
            Expect.eventually(
                () -> admin.describeTopics(List.of(topic), options).allTopicNames().get().get(topic),
                found -> found.partitions().size() == 4,
                "a page for each of four partitions");
        Differs.unless(described.authorizedOperations().contains(AclOperation.DELETE), "%s", described);
        Differs.unless(
            described.partitions().stream().allMatch(one -> one.elr() != null && one.elr().isEmpty()),
            "no eligible leaders beside those in sync: %s", described);
        Expect.failure(
            UnknownTopicOrPartitionException.class, admin.describeTopics(List.of(topic + "x")).allTopicNames());
    }

    private void records() throws Exception {
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaProducer<String, String> producer =
            new KafkaProducer<>(Map.of("bootstrap.servers", bootstrap), new StringSerializer(), new StringSerializer())) {
            for (int count = 0; count < 5; count++) {
                producer.send(new ProducerRecord<>(topic, 0, null, "value")).get();
            }
        }
        long low =
            admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(3))).lowWatermarks().get(partition).get()
                .lowWatermark();
        Differs.unless(low == 3, "the records begin at 3: %d", low);
        Expect.failure(
            OffsetOutOfRangeException.class,
            admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(6))).all());
        for (Map.Entry<OffsetSpec, Long> each :
            Map.of(OffsetSpec.earliest(), 3L, OffsetSpec.latest(), 5L, OffsetSpec.maxTimestamp(), 3L).entrySet()) {
            long offset = admin.listOffsets(Map.of(partition, each.getKey())).partitionResult(partition).get().offset();
            boolean found = offset == each.getValue() || each.getKey() instanceof OffsetSpec.MaxTimestampSpec;
            Differs.unless(found, "%s is at %d: %d", each.getKey(), each.getValue(), offset);
        }
    }

    private void delete() throws Exception {
        admin.deleteTopics(TopicCollection.ofTopicNames(Set.of(topic))).all().get();
        Expect.eventually(() -> admin.listTopics().names().get(), names -> !names.contains(topic), "the topics");
        Expect.failure(UnknownTopicOrPartitionException.class, admin.deleteTopics(List.of(topic)).all());
    }
}
