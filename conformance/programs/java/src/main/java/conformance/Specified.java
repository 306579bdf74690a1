package conformance;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;

/** A line of the specification. Bytes are base64 there; null is null. */
final class Specified {
    final int partition;
    private final Long timestamp; // ms; null is "whatever the writer set"
    private final byte[] key;
    private final byte[] value;
    private final List<Header> headers = new ArrayList<>();

    private Specified(JsonNode line) throws IOException {
        partition = line.get("partition").intValue();
        timestamp = line.get("timestamp").isNull() ? null : line.get("timestamp").longValue();
        key = bytes(line.get("key"));
        value = bytes(line.get("value"));
        for (JsonNode header : line.get("headers")) {
            headers.add(new RecordHeader(header.get(0).textValue(), bytes(header.get(1))));
        }
    }

    static List<Specified> read(Path file) throws IOException {
        ObjectMapper mapper = new ObjectMapper();
        List<Specified> records = new ArrayList<>();
        for (String line : Files.readAllLines(file)) {
            records.add(new Specified(mapper.readTree(line)));
        }
        return records;
    }

    ProducerRecord<byte[], byte[]> toProduce(String topic) {
        return new ProducerRecord<>(topic, partition, timestamp, key, value, headers);
    }

    void compare(ConsumerRecord<byte[], byte[]> got) throws Differs {
        String where = String.format("%s-%d offset %d: ", got.topic(), got.partition(), got.offset());
        Differs.unless(
            timestamp == null || timestamp == got.timestamp(), where + "timestamp %d, expected %d", got.timestamp(), timestamp);
        Differs.unless(
            got.timestampType() == TimestampType.CREATE_TIME, where + "timestamp type %s", got.timestampType());
        Differs.unless(Arrays.equals(key, got.key()), where + "key %s, expected %s", shown(got.key()), shown(key));
        Differs.unless(Arrays.equals(value, got.value()), where + "value %s, expected %s", shown(got.value()), shown(value));
        Header[] came = got.headers().toArray();
        Differs.unless(
            Arrays.asList(came).equals(headers), where + "headers %s, expected %s", Arrays.toString(came), headers);
    }

    private static byte[] bytes(JsonNode base64) throws IOException {
        return base64.isNull() ? null : base64.binaryValue();
    }

    private static String shown(byte[] data) {
        if (data == null) {
            return "null";
        }
        String start = new String(data, 0, Math.min(data.length, 40), StandardCharsets.ISO_8859_1);
        return String.format("\"%s\" (%d bytes)", start, data.length);
    }
}
