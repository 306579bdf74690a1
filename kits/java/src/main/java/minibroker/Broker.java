package minibroker;

import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.*;
import com.fasterxml.jackson.databind.json.JsonMapper;
import java.io.IOException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.*;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;
import java.util.stream.Collectors;

/** A broker in a process of its own, which ends with this one, however this ends. See {@link MinibrokerTest} for JUnit. */
public final class Broker extends Verbs implements AutoCloseable {
    private static final HttpClient HTTP = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
    private static final ObjectMapper JSON = JsonMapper.builder()
        .propertyNamingStrategy(PropertyNamingStrategies.SNAKE_CASE)
        .disable(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES)
        .build();

    private final BrokerProcess process;
    private final String servers;
    private final AtomicInteger topics = new AtomicInteger();
    boolean isShared;
    boolean isChanged; // in a way that a reset does not undo
    private boolean isUsed;

    private Broker(List<String> command, List<String> options) {
        process = new BrokerProcess(command, options);
        servers = state().bootstrapServers();
    }

    /**
     * Starts a broker with options of {@code minibroker serve}, such as {@code "--nodes", "3"}. Throws a
     * {@link MinibrokerError} with the broker's own line if it cannot start.
     */
    public static Broker start(String... options) {
        return start(List.of(), List.of(options));
    }

    /** Starts a broker by the words of a command, such as python3, -m, minibroker. */
    public static Broker start(List<String> command, List<String> options) {
        return new Broker(command, options);
    }

    /** The addresses of all nodes, for clients, as {@code bootstrap.servers} has them. */
    public String bootstrapServers() {
        return servers;
    }

    /** Creates a topic that no other test has, and returns its name. */
    public String topic() {
        return topic(with -> { });
    }

    /** Creates a topic that no other test has, and returns its name. */
    public String topic(Consumer<NewTopic> options) {
        return createTopic("topic-" + topics.incrementAndGet(), options);
    }

    /** Appends records to a topic, and returns the first offset. {@link #produceRecords} has keys and partitions. */
    public long produce(String topic, String... values) {
        return produceRecords(topic, records -> records.values(List.of(values)));
    }

    /** Prepares for a test, unless others use the broker, too. */
    void empty() {
        if (isUsed && !isShared) {
            if (!state().running()) { // a test has killed it
                restart();
            }
            reset();
        }
        isUsed = true;
    }

    /** Ends the broker. There is no need to, as it ends with this process. */
    @Override
    public void close() {
        process.stop();
    }

    @Override
    <T> T ask(String method, List<?> path, Map<String, ?> fields, TypeReference<T> type, String only) {
        isChanged |= method.equals("POST") && path.equals(List.of("security"));
        String target = "/v1/" + path.stream().map(Broker::encoded).collect(Collectors.joining("/"));
        boolean isQuery = method.equals("GET") && fields != null;
        target += !isQuery ? "" : fields.entrySet().stream()
            .map(field -> field.getKey() + "=" + encoded(field.getValue()))
            .collect(Collectors.joining("&", "?", ""));
        try {
            byte[] body = isQuery || fields == null ? new byte[0] : JSON.writeValueAsBytes(fields);
            HttpRequest request = HttpRequest.newBuilder(URI.create(process.control + target))
                .header("content-type", "application/json")
                .method(method, HttpRequest.BodyPublishers.ofByteArray(body))
                .build();
            HttpResponse<byte[]> response = HTTP.send(request, HttpResponse.BodyHandlers.ofByteArray());
            JsonNode answer = JSON.readTree(response.body());
            if (response.statusCode() >= 400) {
                throw new MinibrokerError(answer.path("error").asText(), answer.path("message").asText());
            }
            JsonNode found = only == null ? answer : answer.get(only);
            return found.isMissingNode() ? null : JSON.readValue(JSON.treeAsTokens(found), type);
        } catch (IOException e) {
            throw new MinibrokerError("NOT_RUNNING", process.explained(e));
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new MinibrokerError("INTERRUPTED", "the wait was interrupted: " + method + " " + target);
        }
    }

    private static String encoded(Object value) {
        return URLEncoder.encode(String.valueOf(value), StandardCharsets.UTF_8).replace("+", "%20");
    }
}
