package conformance;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Path;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;

/**
 * Kafka's Java client: writes or reads the records of a specification, exercises the admin API or transactions, or belongs to
 * a group, or sends or receives a record and says what became of it, or logs in.
 *
 * <pre>
 * Main write|read BOOTSTRAP [PREFIX SPEC]...
 * Main admin|transact BOOTSTRAP PREFIX
 * Main member BOOTSTRAP GROUP TOPIC ASSIGNOR [INSTANCE]
 * Main send BOOTSTRAP TOPIC VALUE
 * Main receive BOOTSTRAP TOPIC
 * Main secured
 * </pre>
 *
 * Exits 0 and prints one line, or prints what differed and exits 1.
 */
public final class Main {
    static final int PARTITIONS = 3;
    static final long PATIENCE_MS = 60_000;
    /** The last topic is written with acks=1 and without idempotence, the others with both. */
    static final List<String> TOPICS = List.of("none", "gzip", "snappy", "lz4", "zstd", "plain");

    private Main() {}

    public static void main(String[] args) throws Exception {
        if (args[0].equals("member")) {
            Member.run(args[1], args[2], args[3], args[4], args.length > 5 ? args[5] : null);
            return;
        }
        if (args[0].equals("secured")) {
            Secured.run();
            return;
        }
        if (args[0].equals("send") || args[0].equals("receive")) {
            System.out.println(args[0].equals("send") ? Single.send(args[1], args[2], args[3]) : Single.receive(args[1], args[2]));
            return;
        }
        String client = "kafka-clients " + version();
        try {
            System.out.println(client + ": " + run(args));
        } catch (Differs difference) {
            System.out.println(client + ": " + difference.getMessage());
            System.exit(1);
        }
    }

    private static String version() throws IOException {
        Properties properties = new Properties();
        try (InputStream in = Admin.class.getResourceAsStream("/kafka/kafka-version.properties")) {
            properties.load(in);
        }
        return properties.getProperty("version");
    }

    private static String run(String[] args) throws Exception {
        String action = args[0];
        String bootstrap = args[1];
        String prefix = args[2];
        if (action.equals("admin")) {
            return Administration.exercise(bootstrap, prefix + "-admin");
        }
        if (action.equals("transact")) {
            return Transactions.exercise(bootstrap, prefix);
        }
        int count = 0;
        for (int place = 2; place < args.length; place += 2) {
            List<Specified> records = Specified.read(Path.of(args[place + 1]));
            if (action.equals("write")) {
                Writer.write(bootstrap, args[place], records);
            } else {
                new Reader(args[place], records).read(bootstrap);
            }
            count += records.size();
        }
        return String.format("%s of %d records in each of %d topics", action, count, TOPICS.size());
    }
}
