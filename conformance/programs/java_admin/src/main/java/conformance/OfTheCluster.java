package conformance;

import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.FeatureMetadata;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.QuorumInfo;
import org.apache.kafka.clients.admin.RaftVoterEndpoint;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.errors.BrokerIdNotRegisteredException;
import org.apache.kafka.common.errors.InvalidUpdateVersionException;
import org.apache.kafka.common.errors.UnsupportedVersionException;

/** The nodes, the controllers' quorum, and features. */
final class OfTheCluster {
    private static final String METADATA_VERSION = "metadata.version";
    private static final String ELR_VERSION = "eligible.leader.replicas.version";
    private final Admin admin;

    OfTheCluster(Admin admin) {
        this.admin = admin;
    }

    void exercise() throws Exception {
        nodes();
        quorum();
        features();
    }

    private void nodes() throws Exception {
        DescribeClusterOptions options =
            new DescribeClusterOptions().includeAuthorizedOperations(true).includeFencedBrokers(true);
        DescribeClusterResult cluster = admin.describeCluster(options);
        Differs.unless(cluster.nodes().get().contains(cluster.controller().get()), "%s", cluster.controller().get());
        Differs.unless(
            cluster.nodes().get().stream().noneMatch(Node::isFenced), "nobody is fenced: %s", cluster.nodes().get());
        Differs.unless(
            cluster.authorizedOperations().get().contains(AclOperation.ALTER_CONFIGS),
            "everything is allowed: %s", cluster.authorizedOperations().get());
        Expect.failure(BrokerIdNotRegisteredException.class, admin.unregisterBroker(4711).all());
    }

    private void quorum() throws Exception {
        QuorumInfo quorum = admin.describeMetadataQuorum().quorumInfo().get();
        Set<Integer> voters =
            quorum.voters().stream().map(QuorumInfo.ReplicaState::replicaId).collect(Collectors.toSet());
        Differs.unless(voters.equals(Set.of(quorum.leaderId())) && quorum.leaderEpoch() > 0, "%s", quorum);
        Differs.unless(quorum.nodes().keySet().equals(voters), "where the voters are: %s", quorum.nodes());
        int nodes = admin.describeCluster().nodes().get().size();
        Differs.unless(quorum.observers().size() == nodes - 1, "%d nodes, %s", nodes, quorum.observers());
        Uuid directory = new Uuid(1, 2);
        Expect.failure(
            UnsupportedVersionException.class,
            admin.addRaftVoter(5, directory, Set.of(new RaftVoterEndpoint("CONTROLLER", "localhost", 1))).all());
        Expect.failure(UnsupportedVersionException.class, admin.removeRaftVoter(5, directory).all());
    }

    private void features() throws Exception {
        FeatureMetadata features = admin.describeFeatures().featureMetadata().get();
        short level = features.finalizedFeatures().get(METADATA_VERSION).maxVersionLevel();
        Differs.unless(
            features.supportedFeatures().get(METADATA_VERSION).maxVersion() >= level, "the newest level: %s", features);
        Differs.unless(features.finalizedFeaturesEpoch().orElse(-1L) > 0, "an epoch: %s", features);
        update(METADATA_VERSION, level, FeatureUpdate.UpgradeType.UPGRADE);
        for (FeatureUpdate.UpgradeType type :
            List.of(FeatureUpdate.UpgradeType.SAFE_DOWNGRADE, FeatureUpdate.UpgradeType.UNSAFE_DOWNGRADE)) {
            FeatureUpdate down = new FeatureUpdate((short) 20, type);
            Expect.failure(
                InvalidUpdateVersionException.class, admin.updateFeatures(Map.of(METADATA_VERSION, down), dry()).all());
        }
        FeatureUpdate unknown = new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.UPGRADE);
        Expect.failure(InvalidUpdateVersionException.class, admin.updateFeatures(Map.of("nope", unknown), dry()).all());
        eligibleLeaders(1, FeatureUpdate.UpgradeType.UPGRADE);
        eligibleLeaders(0, FeatureUpdate.UpgradeType.SAFE_DOWNGRADE);
        eligibleLeaders(1, FeatureUpdate.UpgradeType.UPGRADE);
    }

    private void eligibleLeaders(int level, FeatureUpdate.UpgradeType type) throws Exception {
        update(ELR_VERSION, (short) level, type);
        Expect.eventually(
            () -> admin.describeFeatures().featureMetadata().get().finalizedFeatures(),
            found -> level == 0 ? !found.containsKey(ELR_VERSION) : found.containsKey(ELR_VERSION),
            "level " + level + " of " + ELR_VERSION);
    }

    private void update(String name, short level, FeatureUpdate.UpgradeType type) throws Exception {
        FeatureUpdate update = new FeatureUpdate(level, type);
        admin.updateFeatures(Map.of(name, update), new UpdateFeaturesOptions()).all().get();
    }

    private static UpdateFeaturesOptions dry() {
        return new UpdateFeaturesOptions().validateOnly(true);
    }
}
