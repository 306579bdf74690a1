import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.CreateDelegationTokenOptions;
import org.apache.kafka.clients.admin.ExpireDelegationTokenOptions;
import org.apache.kafka.clients.admin.RenewDelegationTokenOptions;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.token.delegation.DelegationToken;
import org.apache.kafka.common.security.token.delegation.TokenInformation;

/** The life of a delegation token: a line for each thing that a client does with it, and what comes of it. */
final class TokenHolder {
    private static final String MODULE = "org.apache.kafka.common.security.";

    private TokenHolder() {
    }

    private static Admin admin(String address, String mechanism, String jaas) {
        Properties properties = new Properties();
        properties.putAll(Map.of(
            "bootstrap.servers", address,
            "security.protocol", "SASL_PLAINTEXT",
            "sasl.mechanism", mechanism,
            "sasl.jaas.config", jaas,
            "request.timeout.ms", "15000",
            "default.api.timeout.ms", "20000"));
        return Admin.create(properties);
    }

    private static Admin holder(String address, String mechanism, DelegationToken token) {
        String login = " required username=\"%s\" password=\"%s\" tokenauth=\"true\";";
        String named = String.format(login, token.tokenInfo().tokenId(), token.hmacAsBase64String());
        return admin(address, mechanism, MODULE + "scram.ScramLoginModule" + named);
    }

    private static boolean logsIn(String address, String mechanism, DelegationToken token) throws Exception {
        try (Admin holder = holder(address, mechanism, token)) {
            return holder.describeCluster().nodes().get().size() == 1;
        } catch (ExecutionException error) {
            System.out.println(error.getCause().getClass().getSimpleName());
            return false;
        }
    }

    public static void main(String[] arguments) throws Exception {
        String address = arguments[0];
        String alice = MODULE + "plain.PlainLoginModule required username=\"alice\" password=\"a-secret\";";
        try (Admin admin = admin(address, "PLAIN", alice)) {
            List<KafkaPrincipal> renewers = new ArrayList<>(List.of(new KafkaPrincipal("User", "bob")));
            CreateDelegationTokenOptions wanted = new CreateDelegationTokenOptions().renewers(renewers);
            DelegationToken token = admin.createDelegationToken(wanted.maxLifetimeMs(7_200_000)).delegationToken().get();
            TokenInformation told = token.tokenInfo();
            System.out.println(told.ownerAsString() + " " + told.tokenRequesterAsString() + " " + told.renewersAsString());
            System.out.println(told.maxTimestamp() - told.issueTimestamp());
            System.out.println(Base64.getEncoder().encodeToString(token.hmac()).equals(token.hmacAsBase64String()));
            for (String mechanism : List.of("SCRAM-SHA-256", "SCRAM-SHA-512")) {
                System.out.println(mechanism + " " + logsIn(address, mechanism, token));
            }
            try (Admin holder = holder(address, "SCRAM-SHA-512", token)) {
                holder.createDelegationToken().delegationToken().get();
            } catch (ExecutionException error) {
                System.out.println(error.getCause().getClass().getSimpleName());
            }
            long renewed = admin.renewDelegationToken(token.hmac(),
                new RenewDelegationTokenOptions().renewTimePeriodMs(3_600_000)).expiryTimestamp().get();
            System.out.println(renewed < told.maxTimestamp());
            System.out.println(admin.describeDelegationToken().delegationTokens().get().contains(token));
            admin.expireDelegationToken(token.hmac(),
                new ExpireDelegationTokenOptions().expiryTimePeriodMs(-1)).expiryTimestamp().get();
            System.out.println(admin.describeDelegationToken().delegationTokens().get().size());
            System.out.println(logsIn(address, "SCRAM-SHA-512", token));
        }
    }
}
