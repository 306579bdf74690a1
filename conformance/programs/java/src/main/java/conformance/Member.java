package conformance;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A member of a group, which reads and commits until SIGTERM, and says on stdout what happens to it: the events of
 * tests/clients/group_member.py, which has the same arguments.
 */
final class Member implements ConsumerRebalanceListener {
    private static final Map<String, String> ASSIGNORS = Map.of(
        "range", "org.apache.kafka.clients.consumer.RangeAssignor",
        "sticky", "org.apache.kafka.clients.consumer.StickyAssignor",
        "cooperative-sticky", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");
    private static final Duration POLL = Duration.ofMillis(100);

    private final Consumer<String, String> consumer;
    private volatile boolean stopped;

    private Member(Properties settings) {
        consumer = new KafkaConsumer<>(settings);
    }

    /** Returns when it has left. An assignor as `consumer:uniform` has it speak the protocol of KIP-848. */
    static void run(String bootstrap, String group, String topic, String assignor, String instance) {
        Member member = new Member(settings(bootstrap, group, assignor, instance));
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            member.stopped = true;
            member.consumer.wakeup();
            try {
                main.join();
            } catch (InterruptedException interrupted) {
                Runtime.getRuntime().halt(1);
            }
            Runtime.getRuntime().halt(0);
        }));
        member.consumer.subscribe(List.of(topic), member);
        while (!member.stopped) {
            member.step();
        }
        member.consumer.close();
        say("closed", "");
    }

    private static Properties settings(String bootstrap, String group, String assignor, String instance) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", group);
        settings.put("key.deserializer", StringDeserializer.class);
        settings.put("value.deserializer", StringDeserializer.class);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("max.poll.interval.ms", "60000");
        settings.put("max.poll.records", "100");
        settings.put("reconnect.backoff.max.ms", "200");
        if (instance != null) {
            settings.put("group.instance.id", instance);
        }
        String[] words = assignor.split(":");
        if (words.length == 2) {
            settings.put("group.protocol", words[0]);
            settings.put("group.remote.assignor", words[1]);
        } else {
            settings.put("partition.assignment.strategy", ASSIGNORS.get(assignor));
            settings.put("session.timeout.ms", "3000");
            settings.put("heartbeat.interval.ms", "300");
        }
        return settings;
    }

    private void step() {
        try {
            ConsumerRecords<String, String> records = consumer.poll(POLL);
            if (!records.isEmpty()) {
                say("read", "\"records\": " + told(records));
                consumer.commitSync();
                say("committed", "\"offsets\": " + positions());
            }
        } catch (WakeupException stop) {
            // `stopped` says so, too
        } catch (KafkaException refused) {
            say("refused", "\"why\": \"" + refused.getClass().getSimpleName() + "\"");
        }
    }

    private static String told(ConsumerRecords<String, String> records) {
        List<String> each = new ArrayList<>();
        for (ConsumerRecord<String, String> record : records) {
            each.add(String.format("[%d, %d, \"%s\"]", record.partition(), record.offset(), record.value()));
        }
        return each.toString();
    }

    private String positions() {
        return consumer.assignment().stream()
            .map(partition -> String.format("\"%d\": %d", partition.partition(), consumer.position(partition)))
            .collect(Collectors.joining(", ", "{", "}"));
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        sayPartitions("assigned", partitions);
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        sayPartitions("revoked", partitions);
    }

    private static void sayPartitions(String event, Collection<TopicPartition> partitions) {
        List<Integer> numbers = partitions.stream().map(TopicPartition::partition).collect(Collectors.toList());
        say(event, "\"partitions\": " + numbers);
    }

    private static void say(String event, String what) {
        String more = what.isEmpty() ? "" : ", " + what;
        System.out.printf("{\"at\": %d, \"event\": \"%s\"%s}%n", System.nanoTime(), event, more);
        System.out.flush();
    }
}
