package conformance;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UserScramCredentialDeletion;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.clients.admin.UserScramCredentialsDescription;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.errors.InvalidRequestException;
import org.apache.kafka.common.errors.ResourceNotFoundException;
import org.apache.kafka.common.errors.SecurityDisabledException;
import org.apache.kafka.common.errors.UnacceptableCredentialException;
import org.apache.kafka.common.errors.UnsupportedByAuthenticationException;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.quota.ClientQuotaFilterComponent;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;

/** Quotas and SCRAM credentials, which are kept, and ACLs, tokens and telemetry, which this kind of broker has not. */
final class OfSecurity {
    private static final byte[] HMAC = {1};
    private final Admin admin;
    private final String user;

    OfSecurity(Admin admin, String prefix) {
        this.admin = admin;
        this.user = prefix + "-user";
    }

    void exercise() throws Exception {
        quotas();
        credentials();
        acls();
        tokens();
        telemetry();
    }

    private void quotas() throws Exception {
        ClientQuotaEntity entity =
            new ClientQuotaEntity(Map.of(ClientQuotaEntity.USER, user, ClientQuotaEntity.CLIENT_ID, "app"));
        alter(entity, new ClientQuotaAlteration.Op("producer_byte_rate", 12345.0));
        ClientQuotaFilter filter =
            ClientQuotaFilter.contains(List.of(ClientQuotaFilterComponent.ofEntity(ClientQuotaEntity.USER, user)));
        Map<ClientQuotaEntity, Map<String, Double>> expected = Map.of(entity, Map.of("producer_byte_rate", 12345.0));
        Expect.eventually(
            () -> admin.describeClientQuotas(filter).entities().get(), found -> found.equals(expected), "the quotas");
        alter(entity, new ClientQuotaAlteration.Op("producer_byte_rate", null));
        Expect.eventually(() -> admin.describeClientQuotas(filter).entities().get(), Map::isEmpty, "no quotas");
        ClientQuotaAlteration.Op wrong = new ClientQuotaAlteration.Op("producer_byte_rate", -1.0);
        Expect.failure(
            InvalidRequestException.class,
            admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity, List.of(wrong)))).all());
    }

    private void alter(ClientQuotaEntity entity, ClientQuotaAlteration.Op change) throws Exception {
        admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity, List.of(change)))).all().get();
    }

    private void credentials() throws Exception {
        ScramCredentialInfo info = new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8192);
        admin.alterUserScramCredentials(List.of(new UserScramCredentialUpsertion(user, info, "secret"))).all().get();
        UserScramCredentialsDescription described =
            Expect.eventually(
                () -> admin.describeUserScramCredentials().all().get(), found -> found.containsKey(user), "users").get(user);
        Differs.unless(described.credentialInfos().equals(List.of(info)), "%s", described);
        Expect.failure(
            UnacceptableCredentialException.class,
            admin.alterUserScramCredentials(
                    List.of(
                        new UserScramCredentialUpsertion(
                            user, new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 1), "secret")))
                .all());
        UserScramCredentialDeletion deletion = new UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_512);
        admin.alterUserScramCredentials(List.of(deletion)).all().get();
        Expect.failure(ResourceNotFoundException.class, admin.alterUserScramCredentials(List.of(deletion)).all());
        Expect.eventually(
            () -> admin.describeUserScramCredentials().all().get(), found -> !found.containsKey(user), "users");
        Expect.failure(
            ResourceNotFoundException.class, admin.describeUserScramCredentials(List.of(user)).description(user));
    }

    private void acls() throws Exception {
        ResourcePattern topics = new ResourcePattern(ResourceType.TOPIC, "t", PatternType.LITERAL);
        AccessControlEntry entry =
            new AccessControlEntry("User:" + user, "*", AclOperation.READ, AclPermissionType.ALLOW);
        Expect.failure(SecurityDisabledException.class, admin.describeAcls(AclBindingFilter.ANY).values());
        Expect.failure(
            SecurityDisabledException.class, admin.createAcls(List.of(new AclBinding(topics, entry))).all());
        Expect.failure(SecurityDisabledException.class, admin.deleteAcls(List.of(AclBindingFilter.ANY)).all());
    }

    private void tokens() throws Exception {
        Class<? extends Exception> refused = UnsupportedByAuthenticationException.class;
        Expect.failure(refused, admin.createDelegationToken().delegationToken());
        Expect.failure(refused, admin.renewDelegationToken(HMAC).expiryTimestamp());
        Expect.failure(refused, admin.expireDelegationToken(HMAC).expiryTimestamp());
        Expect.failure(refused, admin.describeDelegationToken().delegationTokens());
    }

    /** No broker here asks for clients' metrics, so that nobody gives the client an id. */
    private void telemetry() throws Exception {
        Object id = admin.clientInstanceId(Duration.ofSeconds(1));
        Differs.unless(id == null, "no id was expected: %s", id);
    }
}
