import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.net.InetAddress;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

/**
 * For each {superUsers, withoutAcl, acls, questions, some} on stdin: what StandardAuthorizer says to each question of
 * (principal, host, operation, type, name), and to each of `some` (principal, host, operation, type): 1 or 0.
 */
public class Verdicts {
    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        List<String> answers = new ArrayList<>();
        for (JsonNode asked : json.readTree(System.in)) {
            answers.add(verdicts(asked));
        }
        json.writeValue(System.out, answers);
    }

    static String verdicts(JsonNode asked) throws Exception {
        StringBuilder verdicts = new StringBuilder();
        try (StandardAuthorizer authorizer = new StandardAuthorizer()) {
            authorizer.configure(Map.of(
                "super.users", asked.get("superUsers").asText(),
                "allow.everyone.if.no.acl.found", asked.get("withoutAcl").asText()));
            authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
            Map<Uuid, StandardAcl> acls = new HashMap<>();
            for (JsonNode acl : asked.get("acls")) {
                acls.put(Uuid.randomUuid(), acl(acl));
            }
            authorizer.loadSnapshot(acls);
            authorizer.completeInitialLoad();
            for (JsonNode question : asked.get("questions")) {
                ResourcePattern resource = new ResourcePattern(
                    ResourceType.fromCode((byte) question.get(3).asInt()), question.get(4).asText(), PatternType.LITERAL);
                Action action = new Action(operation(question.get(2)), resource, 1, false, false);
                add(verdicts, authorizer.authorize(new Client(question), List.of(action)).get(0));
            }
            for (JsonNode question : asked.get("some")) {
                ResourceType type = ResourceType.fromCode((byte) question.get(3).asInt());
                add(verdicts, authorizer.authorizeByResourceType(new Client(question), operation(question.get(2)), type));
            }
        }
        return verdicts.toString();
    }

    static StandardAcl acl(JsonNode acl) {
        return new StandardAcl(
            ResourceType.fromCode((byte) acl.get(0).asInt()),
            acl.get(1).asText(),
            PatternType.fromCode((byte) acl.get(2).asInt()),
            acl.get(3).asText(),
            acl.get(4).asText(),
            operation(acl.get(5)),
            AclPermissionType.fromCode((byte) acl.get(6).asInt()));
    }

    static AclOperation operation(JsonNode code) {
        return AclOperation.fromCode((byte) code.asInt());
    }

    static void add(StringBuilder verdicts, AuthorizationResult result) {
        verdicts.append(result == AuthorizationResult.ALLOWED ? '1' : '0');
    }

    record Client(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
        Client(JsonNode question) throws Exception {
            this(principal(question.get(0).asText().split(":", 2)), InetAddress.getByName(question.get(1).asText()));
        }

        static KafkaPrincipal principal(String[] parts) {
            return new KafkaPrincipal(parts[0], parts[1]);
        }

        public String listenerName() { return "PLAINTEXT"; }
        public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
        public int requestType() { return 0; }
        public int requestVersion() { return 0; }
        public String clientId() { return ""; }
        public int correlationId() { return 0; }
    }
}
