import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import kafka.api.FetchRequestBuilder;
import kafka.api.PartitionOffsetRequestInfo;
import kafka.common.TopicAndPartition;
import kafka.javaapi.FetchResponse;
import kafka.javaapi.OffsetRequest;
import kafka.javaapi.consumer.SimpleConsumer;
import kafka.message.Message;
import kafka.message.MessageAndOffset;

/** Kafka's consumer of 0.8.2, the simple one: it knows of no group, and asks for a partition after the other. */
public final class OldReader {
    private OldReader() {}

    public static void main(String[] arguments) throws Exception {
        String[] address = arguments[0].split(":");
        SimpleConsumer consumer =
            new SimpleConsumer(address[0], Integer.parseInt(address[1]), 30000, 1 << 16, "old-reader");
        Expected expected = new Expected();
        for (String topic : List.of(arguments).subList(2, arguments.length)) {
            for (int partition = 0; partition < Expected.PARTITIONS; partition++) {
                read(consumer, topic.split(":")[0], partition, topic.split(":")[1], expected);
            }
        }
        Expected.same("the count of " + expected, Integer.parseInt(arguments[1]), expected.count());
        consumer.close();
    }

    private static void read(
        SimpleConsumer consumer, String topic, int partition, String format, Expected expected) throws Exception {
        long end = offset(consumer, topic, partition, kafka.api.OffsetRequest.LatestTime());
        long next = offset(consumer, topic, partition, kafka.api.OffsetRequest.EarliestTime());
        while (next < end) {
            FetchResponse response = consumer.fetch(
                new FetchRequestBuilder().clientId("old-reader").addFetch(topic, partition, next, 20000).build());
            if (response.hasError()) throw new AssertionError("error " + response.errorCode(topic, partition));
            long before = next;
            for (MessageAndOffset each : response.messageSet(topic, partition)) {
                if (each.offset() < next) continue; // the wrapper has older ones, too
                Expected.same(topic + ": the offset", next, each.offset());
                Message message = each.message();
                message.ensureValid();
                expected.take(topic, partition, bytes(message.key()), bytes(message.payload()), null, format);
                next = each.nextOffset();
            }
            if (next == before) throw new AssertionError(topic + ": nothing came at offset " + next);
        }
    }

    private static long offset(SimpleConsumer consumer, String topic, int partition, long time) {
        TopicAndPartition where = new TopicAndPartition(topic, partition);
        Map<TopicAndPartition, PartitionOffsetRequestInfo> asked = new HashMap<>();
        asked.put(where, new PartitionOffsetRequestInfo(time, 1));
        OffsetRequest request = new OffsetRequest(asked, kafka.api.OffsetRequest.CurrentVersion(), "old-reader");
        return consumer.getOffsetsBefore(request).offsets(topic, partition)[0];
    }

    private static byte[] bytes(ByteBuffer buffer) {
        if (buffer == null) return null;
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return bytes;
    }
}
