import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;

/** The records that every writer writes: of each the key or value says who wrote it, and as which. */
final class Expected {
    static final int COUNT = 60;
    static final int PARTITIONS = 3;
    static final long T = 1700000000000L;

    private final Map<String, Integer> next = new HashMap<String, Integer>();
    private int count;

    static long timestamp(int index) {
        return T + index;
    }

    static byte[] key(String writer, int index) {
        if (index % 5 == 0) return null;
        return index % 5 == 1 ? new byte[0] : (writer + ":" + index).getBytes(StandardCharsets.UTF_8);
    }

    static byte[] value(String writer, int index) {
        if (index % 7 == 3 && index % 5 > 1) return null;
        StringBuilder value = new StringBuilder(writer).append(':').append(index).append(':');
        int size = index % 20 == 19 ? 100000 : index * 37 % 400;
        for (int i = 0; i < size; i++) value.append((char) ('a' + (i * 7 + index) % 26));
        return value.toString().getBytes(StandardCharsets.UTF_8);
    }

    /** Checks a record that was read; `timestamp` is null where the client knows of none. */
    void take(String topic, int partition, byte[] key, byte[] value, Long timestamp, String format) {
        byte[] named = value == null ? key : value;
        String[] parts = new String(named, StandardCharsets.UTF_8).split(":", 3);
        String writer = parts[0];
        int index = Integer.parseInt(parts[1]);
        String place = topic + "-" + partition + " by " + writer;
        int expected = next.containsKey(place) ? next.get(place) : partition;
        same(place + ": the index", expected, index);
        next.put(place, (expected + PARTITIONS) % COUNT); // a writer may write them all several times
        same(place + ": the partition of " + index, index % PARTITIONS, partition);
        if (!Arrays.equals(key(writer, index), key)) throw new AssertionError(place + ": the key of " + index);
        if (!Arrays.equals(value(writer, index), value)) throw new AssertionError(place + ": the value of " + index);
        boolean timed = !writer.startsWith("0.8") && !writer.startsWith("0.9") && !format.equals("0");
        if (timestamp != null) same(place + ": the time of " + index, timed ? timestamp(index) : -1L, timestamp);
        count++;
    }

    /** How many came from where. */
    @Override
    public String toString() {
        return count + " records: " + next;
    }

    int count() {
        return count;
    }

    static void same(String what, Object expected, Object found) {
        if (!expected.equals(found)) throw new AssertionError(what + " is " + found + ", not " + expected);
    }
}
