package conformance;

import java.time.Duration;
import java.util.Arrays;
import java.util.Locale;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/**
 * An application that maps, or counts words, with broker-side assignment of its tasks.
 *
 * <p>Arguments: bootstrap servers, application id, topology ("map" or "count"), source topic, target topic, state
 * directory, then name=value of further settings. It tells each state that it enters on a line, and ends with its input.
 */
public final class WordCount {
    private WordCount() {}

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1]);
        settings.put("group.protocol", "streams");
        settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[5]);
        settings.put("default.key.serde", Serdes.StringSerde.class.getName());
        settings.put("default.value.serde", Serdes.StringSerde.class.getName());
        settings.put("consumer.auto.offset.reset", "earliest");
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, "100");
        Arrays.stream(arguments).skip(6).map(each -> each.split("=", 2)).forEach(each -> settings.put(each[0], each[1]));
        KafkaStreams streams = new KafkaStreams(topology(arguments[2], arguments[3], arguments[4]), settings);
        CountDownLatch ended = new CountDownLatch(1);
        streams.setStateListener((state, before) -> {
            System.out.println(state);
            System.out.flush();
            if (state == KafkaStreams.State.ERROR || state == KafkaStreams.State.NOT_RUNNING) {
                ended.countDown();
            }
        });
        streams.start();
        Thread input = new Thread(() -> {
            try {
                while (System.in.read() != -1) {}
            } catch (java.io.IOException gone) {
                System.err.println(gone);
            }
            streams.close(Duration.ofSeconds(30));
        });
        input.setDaemon(true);
        input.start();
        ended.await();
        streams.close(Duration.ofSeconds(30));
        System.exit(streams.state() == KafkaStreams.State.ERROR ? 1 : 0);
    }

    private static Topology topology(String kind, String source, String target) {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> lines = builder.stream(source);
        if (kind.equals("map")) {
            lines.mapValues(line -> line.toUpperCase(Locale.ROOT)).to(target);
        } else {
            lines.flatMapValues(line -> Arrays.asList(line.split(" ")))
                .groupBy((key, word) -> word)
                .count(Materialized.as(Stores.inMemoryKeyValueStore("counts")))
                .toStream()
                .to(target, Produced.with(Serdes.String(), Serdes.Long()));
        }
        return builder.build();
    }
}
