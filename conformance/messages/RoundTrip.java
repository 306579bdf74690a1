// Reads messages with the code that Kafka generates from its definitions, and writes them again.
//
// A line of the input is: class name, version, bytes in hex. A line of the output is: bytes in hex, or "error" and why.
// Which messages, and what the output is compared with, is in test_round_trip.py.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

public class RoundTrip {
    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            System.out.println(answer(line.split(" ", 3)));
        }
    }

    private static String answer(String[] parts) {
        try {
            byte[] data = parts.length < 3 ? new byte[0] : HexFormat.of().parseHex(parts[2]);
            return HexFormat.of().formatHex(again(parts[0], Short.parseShort(parts[1]), data));
        } catch (Exception | Error problem) {
            return "error " + problem;
        }
    }

    private static byte[] again(String name, short version, byte[] data) throws ReflectiveOperationException {
        ApiMessage message = (ApiMessage) Class.forName(name).getDeclaredConstructor().newInstance();
        ByteBuffer left = ByteBuffer.wrap(data);
        message.read(new ByteBufferAccessor(left), version);
        if (left.hasRemaining()) {
            throw new IllegalArgumentException(left.remaining() + " bytes are left");
        }
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer out = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(out), cache, version);
        if (out.hasRemaining()) {
            throw new IllegalArgumentException("size() says " + out.remaining() + " bytes too many");
        }
        return out.array();
    }
}
