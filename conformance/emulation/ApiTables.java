import java.io.File;
import java.lang.reflect.Array;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.net.URL;
import java.net.URLClassLoader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;

/**
 * Prints the APIs that releases of Kafka name for a broker, a line an API: "JAR LISTENER KEY NAME FIRST LAST"; and their
 * features, error codes and some defaults of settings, in lines of the same form.
 *
 * Each jar is loaded by a class loader of its own, so none sees another's classes. How the table is kept changed over the years:
 *
 *   0.8.2 - 0.10   Protocol.REQUESTS, the schemas by key and version, and CURR_VERSION
 *   0.11 - 2.7     ApiKeys.oldestVersion() and latestVersion(); those of KRaft's controllers (2.7) are not enabled
 *   2.8 - 3.4      the same, by listener
 *   3.5 - 3.9      ApiKeys.toApiVersion(): without the versions that are not stable
 *   4.0 on         ApiKeys.toApiVersionForApiResponse(): with what is announced and not served (KAFKA-18659)
 *
 * Before 0.10 the server read some requests by classes of its own: kafka.api.FetchRequest.CurrentVersion.
 */
public class ApiTables {
    static final String PROTOCOL = "org.apache.kafka.common.protocol.";
    static final String COMMON = "org.apache.kafka.server.common.";
    static final String LISTENER_TYPE = "org.apache.kafka.common.message.ApiMessageType$ListenerType";
    /** In the server, the names of its keys and of the classes that read these requests. */
    static final Map<String, String> SERVER_CLASSES = new TreeMap<>(Map.of(
        "ProduceKey", "ProducerRequest",
        "FetchKey", "FetchRequest",
        "OffsetsKey", "OffsetRequest",
        "MetadataKey", "TopicMetadataRequest",
        "OffsetCommitKey", "OffsetCommitRequest",
        "OffsetFetchKey", "OffsetFetchRequest",
        "ConsumerMetadataKey", "ConsumerMetadataRequest",
        "GroupCoordinatorKey", "GroupCoordinatorRequest"));

    /** Settings by the names that their defaults have in the server. */
    static final Map<String, String> DEFAULTS = new TreeMap<>(Map.of(
        "MessageMaxBytes", "message.max.bytes",
        "OffsetsRetentionMinutes", "offsets.retention.minutes",
        "UncleanLeaderElectionEnable", "unclean.leader.election.enable",
        "ConsumerMaxSessionTimeoutMs", "group.max.session.timeout.ms", // so called in 0.9
        "GroupMaxSessionTimeoutMs", "group.max.session.timeout.ms"));

    /** The arguments are kafka-clients, kafka-server-common and kafka_2.11 in one folder; before them, up to "--", what all need. */
    public static void main(String[] arguments) throws Exception {
        int end = Arrays.asList(arguments).indexOf("--");
        for (String jar : Arrays.copyOfRange(arguments, end + 1, arguments.length)) {
            List<URL> parts = new ArrayList<>();
            parts.add(new File(jar).toURI().toURL());
            parts.add(new File(jar.replaceFirst("kafka_[\\d.]+-|kafka-server-common-", "kafka-clients-")).toURI().toURL());
            for (String needed : Arrays.copyOf(arguments, end)) {
                if (isOfItsScala(needed, jar)) parts.add(new File(needed).toURI().toURL());
            }
            try (URLClassLoader loader = new URLClassLoader(parts.toArray(new URL[0]), ClassLoader.getPlatformClassLoader())) {
                ApiTables tables = new ApiTables(new File(jar).getName(), loader);
                if (tables.jar.startsWith("kafka_")) {
                    tables.printOfServer();
                    tables.printDefaults();
                }
                else if (tables.jar.startsWith("kafka-server-common-")) tables.printFeatures();
                else {
                    tables.printOfClients();
                    tables.printErrors();
                }
            }
        }
    }

    /** Whether a needed jar is no Scala library, or that of the Scala for which a server's jar was made. */
    static boolean isOfItsScala(String needed, String jar) {
        String name = new File(needed).getName();
        if (!name.startsWith("scala-library-")) return true;
        return name.startsWith(new File(jar).getName().replaceFirst("kafka_([\\d.]+)-.*", "scala-library-$1."));
    }

    final String jar;
    final ClassLoader loader;
    Class<?> apiKeys;

    ApiTables(String jar, ClassLoader loader) {
        this.jar = jar;
        this.loader = loader;
    }

    void print(String listener, int key, String name, int first, int last) {
        System.out.println(String.join(" ", jar, listener, "" + key, name, "" + first, "" + last));
    }

    void printOfServer() throws Exception {
        Class<?> requestKeys;
        try {
            requestKeys = loader.loadClass("kafka.api.RequestKeys");
        } catch (ClassNotFoundException since010) {
            return;
        }
        for (Map.Entry<String, String> entry : SERVER_CLASSES.entrySet()) {
            try {
                int key = ((Number) requestKeys.getMethod(entry.getKey()).invoke(null)).intValue();
                Class<?> reader = loader.loadClass("kafka.api." + entry.getValue());
                print("SERVER", key, entry.getValue(), 0, ((Number) reader.getMethod("CurrentVersion").invoke(null)).intValue());
            } catch (NoSuchMethodException | ClassNotFoundException notInThisRelease) {
                continue;
            }
        }
    }

    /** "JAR DEFAULTS 0 NAME 0 VALUE": 0.8.2 has them elsewhere. */
    void printDefaults() throws Exception {
        Class<?> defaults;
        try {
            defaults = loader.loadClass("kafka.server.Defaults");
        } catch (ClassNotFoundException in082) {
            return;
        }
        for (Map.Entry<String, String> entry : DEFAULTS.entrySet()) {
            try {
                Object value = defaults.getMethod(entry.getKey()).invoke(null);
                System.out.println(String.join(" ", jar, "DEFAULTS", "0", entry.getValue(), "0", value.toString()));
            } catch (NoSuchMethodException notInThisRelease) {
                continue;
            }
        }
    }

    /** The highest level of each feature that is ready for production: "JAR FEATURES 0 NAME 0 LEVEL". */
    void printFeatures() throws Exception {
        Class<?> metadata = loader.loadClass(COMMON + "MetadataVersion");
        Object newest;
        try {
            newest = metadata.getMethod("latestProduction").invoke(null);
        } catch (NoSuchMethodException before37) {
            newest = metadata.getMethod("latest").invoke(null);
        }
        print("FEATURES", 0, "metadata.version", 0, number(newest, "featureLevel"));
        for (String name : List.of("Features", "Feature")) { // until 3.9, and later; before 3.8 Features were another thing
            Class<?> features;
            try {
                features = loader.loadClass(COMMON + name);
            } catch (ClassNotFoundException notInThisRelease) {
                continue;
            }
            if (!features.isEnum()) continue;
            for (Object feature : (List<?>) features.getField("PRODUCTION_FEATURES").get(null)) {
                String called = (String) features.getMethod("featureName").invoke(feature);
                print("FEATURES", 0, called, 0, number(feature, "latestProduction"));
            }
        }
    }

    void printOfClients() throws Exception {
        apiKeys = loader.loadClass(PROTOCOL + "ApiKeys");
        Class<?> listenerType;
        try {
            listenerType = loader.loadClass(LISTENER_TYPE);
        } catch (ClassNotFoundException before28) {
            printOfListener("ANY", null, Arrays.asList(apiKeys.getEnumConstants()));
            return;
        }
        for (Object listener : listenerType.getEnumConstants()) {
            Object served = apiKeys.getMethod("apisForListener", listenerType).invoke(null, listener);
            printOfListener(listener.toString(), listener, (Collection<?>) served);
        }
    }

    /** "JAR ERRORS CODE NAME 0 0". */
    void printErrors() throws Exception {
        Class<?> errors = loader.loadClass(PROTOCOL + "Errors");
        for (Object error : errors.getEnumConstants()) print("ERRORS", number(error, "code"), error.toString(), 0, 0);
    }

    void printOfListener(String name, Object listener, Collection<?> apis) throws Exception {
        for (Object api : apis) {
            short key = apiKeys.getField("id").getShort(api);
            boolean enabled = !has("isEnabled") || apiKeys.getField("isEnabled").getBoolean(api);
            int[] versions = enabled ? versions(api, key, listener) : null;
            if (versions != null && versions[0] <= versions[1]) print(name, key, api.toString(), versions[0], versions[1]);
        }
    }

    /** The first and the last version, or null if none is announced. */
    int[] versions(Object api, short key, Object listener) throws Exception {
        if (has("toApiVersionForApiResponse")) {
            Method method = apiKeys.getMethod("toApiVersionForApiResponse", boolean.class, listener.getClass());
            return announced((Optional<?>) method.invoke(api, false, listener));
        }
        if (has("toApiVersion")) {
            return announced((Optional<?>) apiKeys.getMethod("toApiVersion", boolean.class).invoke(api, false));
        }
        if (has("oldestVersion")) {
            return new int[] {number(api, "oldestVersion"), number(api, "latestVersion")};
        }
        return ofProtocol(key);
    }

    int[] announced(Optional<?> version) throws Exception {
        if (version.isEmpty()) return null;
        return new int[] {number(version.get(), "minVersion"), number(version.get(), "maxVersion")};
    }

    int[] ofProtocol(short key) throws Exception {
        Class<?> protocol = loader.loadClass(PROTOCOL + "Protocol");
        Object schemas = Array.get(protocol.getField("REQUESTS").get(null), key);
        int first = 0;
        while (first < Array.getLength(schemas) && Array.get(schemas, first) == null) first++;
        Field last = protocol.getDeclaredField("CURR_VERSION");
        last.setAccessible(true);
        return new int[] {first, Array.getShort(last.get(null), key)};
    }

    static int number(Object object, String method) throws Exception {
        Method getter;
        try {
            getter = object.getClass().getMethod(method);
        } catch (NoSuchMethodException constantWithBody) {
            getter = object.getClass().getSuperclass().getMethod(method);
        }
        return ((Number) getter.invoke(object)).intValue();
    }

    /** Whether ApiKeys has a public field or method of the name. */
    boolean has(String name) {
        for (Method method : apiKeys.getMethods()) if (method.getName().equals(name)) return true;
        for (Field field : apiKeys.getFields()) if (field.getName().equals(name)) return true;
        return false;
    }
}
