import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/** What Java and Kafka make of names: lines of the file are `name DER`, or `rules RULES NAME`, all in hexadecimal. */
public class JavaNames {
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] arguments) throws Exception {
        StringBuilder answers = new StringBuilder();
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            String[] parts = line.split(" ", -1);
            String answer;
            if (parts[0].equals("name")) {
                answer = hex(new X500Principal(HEX.parseHex(parts[1])).getName());
            } else {
                answer = mapped(text(parts[1]), text(parts[2]));
            }
            answers.append(answer).append('\n');
        }
        System.out.print(answers);
    }

    private static String mapped(String rules, String name) throws Exception {
        try {
            return hex(SslPrincipalMapper.fromRules(rules).getName(name));
        } catch (SslPrincipalMapper.NoMatchingRule none) {
            return "none";
        } catch (IllegalArgumentException | IndexOutOfBoundsException invalid) {
            return "invalid";
        }
    }

    private static String text(String hex) {
        return new String(HEX.parseHex(hex), StandardCharsets.UTF_8);
    }

    private static String hex(String text) {
        return "=" + HEX.formatHex(text.getBytes(StandardCharsets.UTF_16BE));
    }
}
