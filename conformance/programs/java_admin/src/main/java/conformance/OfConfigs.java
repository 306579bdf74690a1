package conformance;

import static org.apache.kafka.clients.admin.AlterConfigOp.OpType.DELETE;
import static org.apache.kafka.clients.admin.AlterConfigOp.OpType.SET;

import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConfigEntry.ConfigSource;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.ListConfigResourcesOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.config.ConfigResource.Type;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidRequestException;

/** The settings of topics, brokers, loggers, groups and subscriptions to metrics. */
final class OfConfigs {
    private final Admin admin;
    private final String name;

    OfConfigs(Admin admin, String name) {
        this.admin = admin;
        this.name = name;
    }

    void exercise() throws Exception {
        admin.createTopics(List.of(new NewTopic(name, 1, (short) 1))).all().get();
        ConfigResource topic = new ConfigResource(Type.TOPIC, name);
        ConfigResource brokers = new ConfigResource(Type.BROKER, "");
        change(topic, "retention.ms", "1234567", ConfigSource.DYNAMIC_TOPIC_CONFIG);
        change(brokers, "log.retention.ms", "7654321", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG);
        change(new ConfigResource(Type.GROUP, name), "consumer.session.timeout.ms", "50000", ConfigSource.DYNAMIC_GROUP_CONFIG);
        change(
            new ConfigResource(Type.CLIENT_METRICS, name), "interval.ms", "5000", ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG);
        broker();
        listed();
        refused(topic, "retention.ms", "long", InvalidConfigurationException.class);
        refused(brokers, "node.id", "7", InvalidRequestException.class);
        admin.incrementalAlterConfigs(Map.of(brokers, List.of(operation("log.retention.ms", null, DELETE)))).all().get();
    }

    /** Sets a value, sees it with its source and documentation, and takes it away. */
    private void change(ConfigResource resource, String key, String value, ConfigSource source) throws Exception {
        admin.incrementalAlterConfigs(Map.of(resource, List.of(operation(key, value, SET)))).all().get();
        ConfigEntry entry =
            Expect.eventually(
                () -> entry(resource, key), found -> found != null && found.value().equals(value), key + " of " + resource);
        Differs.unless(entry.source() == source && entry.documentation() != null, "%s: %s", resource, entry);
        Differs.unless(entry.synonyms().get(0).value().equals(value), "%s: %s", resource, entry.synonyms());
        if (resource.type() == Type.TOPIC || resource.type() == Type.GROUP) {
            admin.incrementalAlterConfigs(Map.of(resource, List.of(operation(key, null, DELETE)))).all().get();
            Expect.eventually(
                () -> entry(resource, key), found -> !found.value().equals(value), key + " without a value of its own");
        }
    }

    private static AlterConfigOp operation(String key, String value, AlterConfigOp.OpType type) {
        return new AlterConfigOp(new ConfigEntry(key, value), type);
    }

    private ConfigEntry entry(ConfigResource resource, String key) throws Exception {
        DescribeConfigsOptions options = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
        return admin.describeConfigs(List.of(resource), options).all().get().get(resource).get(key);
    }

    /** What only a broker itself tells: what cannot change while it runs, and the levels of its loggers. */
    private void broker() throws Exception {
        String id = admin.describeCluster().nodes().get().stream().map(Node::idString).findFirst().orElseThrow();
        ConfigEntry port = entry(new ConfigResource(Type.BROKER, id), "socket.request.max.bytes");
        Differs.unless(port.isReadOnly() && port.type() == ConfigEntry.ConfigType.INT, "%s", port);
        ConfigResource loggers = new ConfigResource(Type.BROKER_LOGGER, id);
        ConfigEntry before = entry(loggers, "root");
        Differs.unless(before.source() == ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG, "%s", before);
        admin.incrementalAlterConfigs(Map.of(loggers, List.of(operation("root", before.value(), SET)))).all().get();
        refused(loggers, "root", "LOUD", InvalidConfigurationException.class);
        refused(loggers, "no such logger", "INFO", InvalidConfigurationException.class);
    }

    @SuppressWarnings({"deprecation", "removal"}) // both of the methods that list subscriptions are to be called
    private void listed() throws Exception {
        Set<ConfigResource> all = Set.copyOf(admin.listConfigResources().all().get());
        for (Type type : List.of(Type.TOPIC, Type.CLIENT_METRICS)) {
            Differs.unless(all.contains(new ConfigResource(type, name)), "%s %s is not listed: %s", type, name, all);
        }
        Set<Type> types =
            admin.listConfigResources(Set.of(Type.BROKER, Type.BROKER_LOGGER), new ListConfigResourcesOptions())
                .all().get().stream().map(ConfigResource::type).collect(Collectors.toSet());
        Differs.unless(types.equals(Set.of(Type.BROKER, Type.BROKER_LOGGER)), "listed: %s", types);
        Differs.unless(
            admin.listClientMetricsResources().all().get().stream().anyMatch(one -> one.name().equals(name)),
            "%s is no subscription", name);
    }

    private void refused(ConfigResource resource, String key, String value, Class<? extends Exception> kind)
        throws Exception {
        Expect.failure(kind, admin.incrementalAlterConfigs(Map.of(resource, List.of(operation(key, value, SET)))).all());
    }
}
