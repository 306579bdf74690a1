// Prints the batches of java.json: what Apache Kafka's own Java client writes. Nothing of a test run needs Java.
// With Java 17 and, as CP, the jars kafka-clients 4.3.0, lz4-java, snappy-java, zstd-jni and slf4j-api of Maven Central:
//     java -cp $CP JavaBatches.java > java.json

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.function.Consumer;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.message.KRaftVersionRecord;
import org.apache.kafka.common.message.LeaderChangeMessage;
import org.apache.kafka.common.message.SnapshotFooterRecord;
import org.apache.kafka.common.message.SnapshotHeaderRecord;
import org.apache.kafka.common.message.VotersRecord;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;

public class JavaBatches {
    static final long T = 1700000000000L;
    static final List<String> lines = new ArrayList<>();

    public static void main(String[] arguments) {
        Compression[] codecs = {
            Compression.NONE, Compression.gzip().build(), Compression.snappy().build(), Compression.lz4().build(),
            Compression.zstd().build()};
        for (Compression codec : codecs) {
            print("small " + codec.type().name, build(codec, JavaBatches::small));
            if (codec != Compression.NONE) print("large " + codec.type().name, build(codec, JavaBatches::large));
        }
        transactional();
        control();
        System.out.println("{\n" + String.join(",\n", lines) + "\n}");
    }

    static void small(MemoryRecordsBuilder batch) {
        batch.append(T, bytes("key"), bytes("value"));
        batch.append(T + 1, null, bytes("no key"));
        batch.append(T + 2, bytes("no value"), null);
        batch.append(T - 5, bytes(""), bytes(""), new Header[] {
            new RecordHeader("empty", new byte[0]), new RecordHeader("null", (byte[]) null),
            new RecordHeader("twice", bytes("1")), new RecordHeader("twice", bytes("2"))});
        batch.append(T + 100000, bytes("cl\u00e9"), bytes("x".repeat(300)), new Header[] {
            new RecordHeader("\u043a\u043b\u044e\u0447", new byte[] {0, -1})});
    }

    static void large(MemoryRecordsBuilder batch) {
        for (int i = 0; i < 3; i++) batch.append(T, null, bytes("minibroker ".repeat(10000)));
    }

    static MemoryRecords build(Compression codec, Consumer<MemoryRecordsBuilder> content) {
        MemoryRecordsBuilder batch =
            MemoryRecords.builder(ByteBuffer.allocate(1 << 20), codec, TimestampType.CREATE_TIME, 0L);
        content.accept(batch);
        return batch.build();
    }

    static void transactional() {
        MemoryRecordsBuilder batch = MemoryRecords.builder(ByteBuffer.allocate(1024), (byte) 2, Compression.NONE,
            TimestampType.CREATE_TIME, 40L, -1L, 77L, (short) 3, 2147483646, true, 9);
        for (int i = 0; i < 3; i++) batch.append(T, null, bytes("in a transaction"));
        print("transactional", batch.build());
        MemoryRecordsBuilder stamped = MemoryRecords.builder(ByteBuffer.allocate(1024), (byte) 2, Compression.NONE,
            TimestampType.LOG_APPEND_TIME, 0L, T + 7);
        stamped.append(T, null, bytes("a"));
        stamped.append(T + 1, null, bytes("b"));
        print("log append time", stamped.build());
    }

    static void control() {
        print("abort", MemoryRecords.withEndTransactionMarker(5L, T, 9, 77L, (short) 3,
            new EndTransactionMarker(ControlRecordType.ABORT, 12)));
        print("commit", MemoryRecords.withEndTransactionMarker(5L, T, 9, 77L, (short) 3,
            new EndTransactionMarker(ControlRecordType.COMMIT, 12)));
        Uuid directory = new Uuid(0x0123456789abcdefL, 0x0011223344556677L);
        LeaderChangeMessage.Voter one = new LeaderChangeMessage.Voter().setVoterId(1);
        LeaderChangeMessage.Voter two = new LeaderChangeMessage.Voter().setVoterId(2);
        print("leader change", MemoryRecords.withLeaderChangeMessage(5L, T, 9, ByteBuffer.allocate(512),
            new LeaderChangeMessage().setVersion((short) 0).setLeaderId(1).setVoters(List.of(one, two))
                .setGrantingVoters(List.of(one))));
        print("snapshot header", MemoryRecords.withSnapshotHeaderRecord(0L, T, 9, ByteBuffer.allocate(256),
            new SnapshotHeaderRecord().setVersion((short) 0).setLastContainedLogTimestamp(T - 1)));
        print("snapshot footer", MemoryRecords.withSnapshotFooterRecord(0L, T, 9, ByteBuffer.allocate(256),
            new SnapshotFooterRecord().setVersion((short) 0)));
        print("kraft version", MemoryRecords.withKRaftVersionRecord(0L, T, 9, ByteBuffer.allocate(256),
            new KRaftVersionRecord().setVersion((short) 0).setKRaftVersion((short) 1)));
        VotersRecord.EndpointCollection endpoints = new VotersRecord.EndpointCollection();
        endpoints.add(new VotersRecord.Endpoint().setName("CONTROLLER").setHost("localhost").setPort(65535));
        print("kraft voters", MemoryRecords.withVotersRecord(0L, T, 9, ByteBuffer.allocate(256),
            new VotersRecord().setVersion((short) 0).setVoters(List.of(new VotersRecord.Voter().setVoterId(1)
                .setVoterDirectoryId(directory).setEndpoints(endpoints).setKRaftVersionFeature(
                    new VotersRecord.KRaftVersionFeature().setMinSupportedVersion((short) 0)
                        .setMaxSupportedVersion((short) 1))))));
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static void print(String name, MemoryRecords records) {
        byte[] batch = new byte[records.sizeInBytes()];
        records.buffer().get(batch);
        lines.add("  \"" + name + "\": \"" + HexFormat.of().formatHex(batch) + "\"");
    }
}
