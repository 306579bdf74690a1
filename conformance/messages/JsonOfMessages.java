// Reads messages with the code that Kafka generates from its definitions, and prints them by Kafka's JSON converters.
//
// A line of the input is: class name, version, bytes in hex. A line of the output is: JSON, or "error" and why.
// Which messages, and what the output is compared with, is in test_explained.py.

import com.fasterxml.jackson.databind.JsonNode;
import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.io.PrintWriter;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;

public class JsonOfMessages {
    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        OutputStreamWriter utf8 = new OutputStreamWriter(System.out, StandardCharsets.UTF_8);
        PrintWriter output = new PrintWriter(new BufferedWriter(utf8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            output.println(answer(line.split(" ", 3)));
        }
        output.flush();
    }

    private static String answer(String[] parts) {
        try {
            byte[] data = parts.length < 3 ? new byte[0] : HexFormat.of().parseHex(parts[2]);
            return json(parts[0], Short.parseShort(parts[1]), data).toString();
        } catch (Exception | Error problem) {
            return "error " + problem;
        }
    }

    private static JsonNode json(String name, short version, byte[] data) throws ReflectiveOperationException {
        Class<?> kind = Class.forName(name);
        ApiMessage message = (ApiMessage) kind.getDeclaredConstructor().newInstance();
        message.read(new ByteBufferAccessor(ByteBuffer.wrap(data)), version);
        Class<?> converter = Class.forName(name + "JsonConverter");
        // Without the bytes of records, of which it then says the size.
        return (JsonNode) converter.getMethod("write", kind, short.class, boolean.class).invoke(null, message, version, false);
    }
}
