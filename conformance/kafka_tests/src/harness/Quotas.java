package harness;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import kafka.server.ClientRequestQuotaManager;
import kafka.server.QuotaFactory.QuotaManagers;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.server.quota.ClientQuotaManager;
import org.apache.kafka.server.quota.ControllerMutationQuotaManager;

/** The quotas of clients, as an admin client sees them. */
final class Quotas {
    /** The users and client ids that a quota may be for, in the order in which they apply: 1 the own one, 0 the default, -1 none. */
    private static final List<List<Integer>> ORDER = List.of(List.of(1, 1), List.of(1, 0), List.of(1, -1), List.of(0, 1), List.of(0, 0), List.of(0, -1), List.of(-1, 1), List.of(-1, 0));

    static Object managers(Object self, Cluster cluster) {
        return Bridge.part(cluster, self, "quotas", () -> Internals.mock(QuotaManagers.class, "quotaManagers", Map.of(
            "produce", a -> manager(ClientQuotaManager.class, cluster, "producer_byte_rate"),
            "fetch", a -> manager(ClientQuotaManager.class, cluster, "consumer_byte_rate"),
            "request", a -> manager(ClientRequestQuotaManager.class, cluster, "request_percentage"),
            "controllerMutation", a -> manager(ControllerMutationQuotaManager.class, cluster, "controller_mutation_rate"))));
    }

    private static <T> T manager(Class<T> type, Cluster cluster, String key) {
        return Internals.mock(type, "quotaManagers of " + key, Map.of("quota", a ->
            quota(cluster, key, a[0] instanceof KafkaPrincipal ? ((KafkaPrincipal) a[0]).getName() : (String) a[0], (String) a[1])));
    }

    private static Quota quota(Cluster cluster, String key, String user, String client) throws Exception {
        Map<ClientQuotaEntity, Map<String, Double>> all = cluster.admin().describeClientQuotas(ClientQuotaFilter.all()).entities().get();
        for (List<Integer> kinds : ORDER) {
            Map<String, String> entity = new HashMap<>();
            if (kinds.get(0) >= 0) entity.put(ClientQuotaEntity.USER, kinds.get(0) == 1 ? user : null);
            if (kinds.get(1) >= 0) entity.put(ClientQuotaEntity.CLIENT_ID, kinds.get(1) == 1 ? client : null);
            Double found = Optional.ofNullable(all.get(new ClientQuotaEntity(entity))).map(quotas -> quotas.get(key)).orElse(null);
            if (found != null) return Quota.upperBound(found);
        }
        return Quota.upperBound(Long.MAX_VALUE);
    }
}
