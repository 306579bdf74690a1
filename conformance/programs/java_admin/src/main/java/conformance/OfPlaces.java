package conformance;

import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterPartitionReassignmentsOptions;
import org.apache.kafka.clients.admin.DescribeReplicaLogDirsResult.ReplicaLogDirInfo;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.errors.ElectionNotNeededException;
import org.apache.kafka.common.errors.InvalidReplicaAssignmentException;
import org.apache.kafka.common.errors.InvalidReplicationFactorException;
import org.apache.kafka.common.errors.LogDirNotFoundException;
import org.apache.kafka.common.errors.NoReassignmentInProgressException;
import org.apache.kafka.common.serialization.StringSerializer;

/** Where replicas lie, who leads, and in which directories the logs are. */
final class OfPlaces {
    private final Admin admin;
    private final String bootstrap;
    private final String topic;
    private final TopicPartition partition;
    private List<Integer> nodes;

    OfPlaces(Admin admin, String bootstrap, String topic) {
        this.admin = admin;
        this.bootstrap = bootstrap;
        this.topic = topic;
        this.partition = new TopicPartition(topic, 0);
    }

    void exercise() throws Exception {
        nodes = admin.describeCluster().nodes().get().stream().map(Node::id).sorted().toList();
        admin.createTopics(List.of(new NewTopic(topic, Map.of(0, List.of(nodes.get(0)))))).all().get();
        Expect.eventually(this::leader, leader -> leader == nodes.get(0), "the leader");
        refusals();
        if (nodes.size() >= 3) {
            moves();
        }
        directories();
    }

    private int leader() throws Exception {
        Node leader = described().leader();
        return leader == null ? -1 : leader.id();
    }

    private TopicPartitionInfo described() throws Exception {
        return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().get(0);
    }

    private void refusals() throws Exception {
        Map<TopicPartition, Optional<Throwable>> elections =
            admin.electLeaders(ElectionType.PREFERRED, Set.of(partition)).partitions().get();
        Differs.unless(
            elections.get(partition).orElseThrow() instanceof ElectionNotNeededException, "no election: %s", elections);
        Differs.unless(
            !admin.electLeaders(ElectionType.UNCLEAN, null).partitions().get().containsKey(partition),
            "an election of all tells those that needed one");
        Expect.failure(InvalidReplicaAssignmentException.class, reassigned(4711));
        Expect.failure(
            NoReassignmentInProgressException.class,
            admin.alterPartitionReassignments(Map.of(partition, Optional.empty())).all());
        Differs.unless(admin.listPartitionReassignments().reassignments().get().isEmpty(), "nothing moves");
    }

    private org.apache.kafka.common.KafkaFuture<Void> reassigned(Integer... replicas) {
        NewPartitionReassignment wanted = new NewPartitionReassignment(List.of(replicas));
        return admin.alterPartitionReassignments(Map.of(partition, Optional.of(wanted))).all();
    }

    /** While a producer writes: all records arrive, in order, whoever leads. */
    private void moves() throws Exception {
        int first = nodes.get(0);
        int second = nodes.get(1);
        int third = nodes.get(2);
        try (KafkaProducer<String, String> producer =
            new KafkaProducer<>(Map.of("bootstrap.servers", bootstrap), new StringSerializer(), new StringSerializer())) {
            expectOffset(producer, 0);
            reassigned(second, third).get();
            Expect.eventually(this::leader, leader -> leader == second, "the new leader");
            Differs.unless(described().replicas().size() == 2 && described().isr().size() == 2, "%s", described());
            expectOffset(producer, 1);
            reassigned(third, second).get();
            Expect.eventually(() -> described().replicas().get(0).id(), id -> id == third, "the preferred leader");
            Differs.unless(leader() == second, "the leader stays until an election: %d", leader());
            Optional<Throwable> elected =
                admin.electLeaders(ElectionType.PREFERRED, Set.of(partition)).partitions().get().get(partition);
            Differs.unless(elected.isEmpty(), "an election: %s", elected);
            Expect.eventually(this::leader, leader -> leader == third, "the elected leader");
            expectOffset(producer, 2);
            AlterPartitionReassignmentsOptions keep =
                new AlterPartitionReassignmentsOptions().allowReplicationFactorChange(false);
            NewPartitionReassignment one = new NewPartitionReassignment(List.of(first));
            Expect.failure(
                InvalidReplicationFactorException.class,
                admin.alterPartitionReassignments(Map.of(partition, Optional.of(one)), keep).all());
            reassigned(first).get();
            Expect.eventually(this::leader, leader -> leader == first, "the first leader again");
            expectOffset(producer, 3);
        }
    }

    private void expectOffset(KafkaProducer<String, String> producer, long expected) throws Exception {
        long offset = producer.send(new ProducerRecord<>(topic, 0, null, "value")).get().offset();
        Differs.unless(offset == expected, "offset %d was expected: %d", expected, offset);
    }

    private void directories() throws Exception {
        int node = nodes.get(0);
        Map<String, LogDirDescription> described = admin.describeLogDirs(List.of(node)).allDescriptions().get().get(node);
        Differs.unless(
            described.values().stream().allMatch(one -> one.error() == null && one.totalBytes().orElse(0) > 0),
            "%s", described);
        TopicPartitionReplica replica = new TopicPartitionReplica(topic, 0, node);
        String present = directory(replica);
        Differs.unless(described.get(present).replicaInfos().containsKey(partition), "in %s: %s", present, described);
        Expect.failure(
            LogDirNotFoundException.class, admin.alterReplicaLogDirs(Map.of(replica, "/no/such/directory")).all());
        Set<String> others = described.keySet().stream().filter(path -> !path.equals(present)).collect(Collectors.toSet());
        String target = others.stream().findFirst().orElse(present);
        admin.alterReplicaLogDirs(Map.of(replica, target)).all().get();
        Expect.eventually(() -> directory(replica), path -> path.equals(target), "the new directory");
    }

    private String directory(TopicPartitionReplica replica) throws Exception {
        ReplicaLogDirInfo info = admin.describeReplicaLogDirs(List.of(replica)).all().get().get(replica);
        return info.getCurrentReplicaLogDir();
    }
}
