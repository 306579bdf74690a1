import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.utils.internals.Exit;

/**
 * Runs Kafka's command-line tools, one after the other, in one process: a start of Java costs more than most of them.
 *
 * A line of stdin has {"tool": class, "arguments": [...]}, the line that answers it {"status", "out", "err"}.
 */
public final class KafkaTools {
    private static final ObjectMapper JSON = new ObjectMapper();

    /** What a tool throws where it would end the process. Some catch it, and end it again: the first status counts. */
    private static final class Ended extends Error {
        private static final long serialVersionUID = 1;
    }

    private static Integer firstStatus;

    private KafkaTools() {}

    public static void main(String[] arguments) throws Exception {
        Exit.setExitProcedure((status, message) -> {
            firstStatus = firstStatus == null ? status : firstStatus;
            throw new Ended();
        });
        Exit.setShutdownHookAdder((name, hook) -> { }); // they would keep what has ended
        PrintStream answers = System.out;
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            answers.println(answer(JSON.readTree(line)));
        }
        Runtime.getRuntime().halt(0);
    }

    private static ObjectNode answer(JsonNode asked) throws ReflectiveOperationException {
        String[] arguments = JSON.convertValue(asked.get("arguments"), String[].class);
        Method main = Class.forName(asked.get("tool").asText()).getMethod("main", String[].class);
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        firstStatus = null;
        int last = 0;
        try {
            main.invoke(null, (Object) arguments);
        } catch (InvocationTargetException thrown) {
            thrown.getCause().printStackTrace();
            last = 1;
        }
        return JSON.createObjectNode()
            .put("status", firstStatus == null ? last : firstStatus)
            .put("out", out.toString(StandardCharsets.UTF_8))
            .put("err", err.toString(StandardCharsets.UTF_8));
    }
}
