import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.Map;
import java.util.TreeMap;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.security.JaasContext;

/** What Kafka reads in JAAS configurations: a line of the file each, all in hexadecimal. */
public class JavaJaas {
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] arguments) throws Exception {
        StringBuilder answers = new StringBuilder();
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            answers.append(read(new String(HEX.parseHex(line), StandardCharsets.UTF_8))).append('\n');
        }
        System.out.print(answers);
    }

    private static String read(String text) {
        AppConfigurationEntry entry;
        TreeMap<String, Object> options;
        try {
            Map<String, Password> configs = Map.of("plain.sasl.jaas.config", new Password(text));
            entry = JaasContext.loadServerContext(new ListenerName("x"), "PLAIN", configs).configurationEntries().get(0);
            options = new TreeMap<>(entry.getOptions()); // Kafka also takes an option without a name, of which we want none
        } catch (IllegalArgumentException | NullPointerException invalid) {
            return "invalid";
        }
        StringBuilder found = new StringBuilder(hex(entry.getLoginModuleName()));
        options.forEach(
            (key, value) -> found.append(' ').append(hex(key)).append('=').append(hex((String) value)));
        return found.toString();
    }

    private static String hex(String text) {
        return HEX.formatHex(text.getBytes(StandardCharsets.UTF_8));
    }
}
