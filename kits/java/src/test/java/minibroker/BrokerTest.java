package minibroker;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.api.parallel.Execution;
import org.junit.jupiter.api.parallel.ExecutionMode;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

@MinibrokerTest
class BrokerTest {
    @Test
    void recordsAreWrittenAndRead(Broker kafka) {
        assertEquals(0, kafka.produce("orders", "first", "second"));
        long offset = kafka.produceRecords("orders", records -> records
            .valuesHex(Arrays.asList("ff00", null)).key("ann").timestampMs(7).headers(Map.of("client_id", "x")));
        List<Broker.SeenRecord> found = kafka.expect("orders", 4);
        assertEquals(2, offset);
        assertEquals("first", found.get(0).value());
        assertNull(found.get(0).key());
        assertEquals("ff00", found.get(2).valueHex());
        assertNull(found.get(3).value());
        assertEquals(List.of(List.of("client_id", "x")), found.get(3).headers());
        assertEquals(7, found.get(3).timestampMs());
        assertEquals(4, kafka.records("orders", with -> with.partition(0)).size());
    }

    @ParameterizedTest
    @ValueSource(ints = {1, 2})
    void aTestFindsNothingOfOthers(int number, Broker kafka) {
        assertTrue(kafka.records("orders").isEmpty());
        kafka.produce("orders", "first");
        kafka.kill();
    }

    @Test
    void aWaitSaysWhatIsThereInstead(Broker kafka) {
        kafka.produceRecords("orders", records -> records.values(List.of("first")).key("ann"));
        MinibrokerError error = assertThrows(MinibrokerError.class,
            () -> kafka.expect("orders", 2, wait -> wait.timeout(Duration.ofMillis(50))));
        assertEquals("after 0.05 s: 2 records were expected in orders, and there is 1\n"
            + "  orders-0 offset 0: key 'ann', value 'first'", error.getMessage());
        assertEquals("EXPIRED", error.code);
        assertThrows(AssertionError.class, () -> kafka.waitForGroup("billing", wait -> wait.timeout(Duration.ofMillis(1))));
        error = assertThrows(MinibrokerError.class,
            () -> kafka.waitForRequests("Fetch", 1, wait -> wait.timeout(Duration.ofMillis(1)).clientId("x")));
        assertTrue(error.getMessage().contains("1 request was expected (api Fetch, client_id x), and there are 0"));
    }

    @Test
    void faultsAndTime(Broker kafka) {
        Broker.FaultState fault = kafka.addFault(with -> with.api("Produce").error("NOT_LEADER_OR_FOLLOWER").times(2));
        assertEquals(List.of(fault), kafka.faults());
        kafka.removeFault(fault.number());
        long before = kafka.freezeClock().nowMs();
        Broker.ClockState later = kafka.advanceClock(Duration.ofDays(8));
        assertEquals(691_200_000, later.nowMs() - before);
        assertTrue(later.frozen());
        assertEquals(List.of(), kafka.requests("Fetch"));
    }

    @Test
    void snapshotsAndCrashes(Broker kafka) {
        kafka.produce("client_ids", "first");
        long snapshot = kafka.snapshot();
        kafka.produce("others", "first");
        kafka.restore(snapshot);
        kafka.kill();
        kafka.restart();
        assertEquals(Map.of("client_ids", List.of(1L)), kafka.state().topics());
    }

    @Test
    void anErrorOfKafkaHasItsName(Broker kafka) {
        kafka.createTopic("orders", with -> with.partitions(2).config(Map.of("retention.ms", -1)));
        MinibrokerError error = assertThrows(MinibrokerError.class, () -> kafka.createTopic("orders"));
        assertEquals("TOPIC_ALREADY_EXISTS", error.code);
    }

    @Nested
    class Inside {
        @Test
        void aClassInsideHasTheSameBroker(Broker kafka) {
            kafka.produce("orders", "first");
            assertEquals(1, kafka.expect("orders").size());
        }
    }

    @Nested
    @MinibrokerTest(shared = true)
    @Execution(ExecutionMode.CONCURRENT)
    class AtTheSameTime {
        @ParameterizedTest
        @ValueSource(strings = {"first", "second", "third"})
        void eachHasATopicOfItsOwn(String value, Broker kafka) {
            String topic = kafka.topic(with -> with.partitions(2));
            kafka.produce(topic, value);
            assertEquals(List.of(value), kafka.expect(topic).stream().map(Broker.SeenRecord::value).toList());
        }
    }

    @Nested
    @MinibrokerTest(nodes = 3, security = "SASL_SSL", users = "alice:wonderland", registry = true, property = "own.servers",
        settings = "default.replication.factor=3")
    class ACluster {
        @Test
        void nodesSecurityAndARegistry(Broker kafka) {
            assertEquals(3, kafka.bootstrapServers().split(",").length);
            assertEquals(kafka.bootstrapServers(), System.getProperty("own.servers"));
            String config = kafka.clientConfig("java", with -> with.user("alice")).toString();
            assertTrue(config.contains("wonderland") && config.contains("bootstrap.servers"), config);
            kafka.deny("alice", "write", rule -> rule.topic("orders"));
            assertTrue(kafka.security().users().contains("alice"));
            assertTrue(kafka.security().issuer().tokenEndpoint().startsWith("https://"));
            assertTrue(kafka.registryUrl().startsWith("https://localhost:"));
            assertEquals(1, kafka.registerSchema("orders-value", Map.of("type", "string")));
            kafka.createTopic("orders");
            Long leader = kafka.leader("orders", 0);
            kafka.killNode(leader);
            assertNotEquals(leader, kafka.leader("orders", 0));
            kafka.startNode(leader);
            assertNull(kafka.moveLeader("orders", 0, null));
            kafka.configureShareGroup("workers", Map.of("share.auto.offset.reset", "earliest"));
            assertEquals(List.of(), kafka.deliveries("workers", with -> with.topic("orders")));
        }
    }

    @Test
    void aBrokerThatCannotStartSaysWhy() {
        MinibrokerError error =
            assertThrows(MinibrokerError.class, () -> Broker.start("--set", "log.segment.byte=1"));
        assertEquals("minibroker did not start: --set log.segment.byte: unknown setting log.segment.byte; "
            + "did you mean log.segment.bytes?", error.getMessage());
        String reason = "the extra control is missing: python3 -m pip install 'minibroker[control]'";
        List<String> command = List.of("sh", "-c", "echo \"minibroker: $0\" >&2; exit 2", reason);
        error = assertThrows(MinibrokerError.class, () -> Broker.start(command, List.of()));
        assertEquals("minibroker did not start: " + reason, error.getMessage());
        error = assertThrows(MinibrokerError.class, () -> Broker.start(List.of("/nowhere"), List.of()));
        assertTrue(error.getMessage().contains("/nowhere"), error.getMessage());
    }

    @Test
    void aBrokerThatHasEndedSaysSo() throws InterruptedException {
        Broker own = Broker.start();
        own.close();
        MinibrokerError error;
        do { // it takes a moment
            error = assertThrows(MinibrokerError.class, () -> {
                own.reset();
                throw new MinibrokerError("STILL_THERE", "it runs");
            });
        } while (error.code.equals("STILL_THERE"));
        assertTrue(error.getMessage().startsWith("minibroker has ended"), error.getMessage());
    }

    @Test
    void aBrokerIsFoundInThisOrder(@TempDir Path folder) throws IOException {
        Map<String, String> environment = Map.of("PATH", folder.toString());
        assertThrows(IOException.class, () -> BrokerProcess.command(List.of(), folder, environment));
        List<List<String>> starts = List.of(List.of("podman", "run"), List.of("docker", "run"),
            List.of("uvx", "--from", "minibroker[control,registry]", "minibroker"), List.of("minibroker"));
        for (List<String> words : starts) {
            File program = Files.createFile(folder.resolve(words.get(0))).toFile();
            assertTrue(program.setExecutable(true));
            assertEquals(words, BrokerProcess.command(List.of(), folder, environment).subList(0, words.size()));
        }
        Map<String, String> named = Map.of("PATH", folder.toString(), "MINIBROKER", "python3 -m minibroker");
        assertEquals(List.of("python3", "-m", "minibroker"), BrokerProcess.command(List.of(), folder, named));
        assertEquals(List.of("own"), BrokerProcess.command(List.of("own"), folder, named));
    }

    @Test
    void anImageIsABrokerToo(@TempDir Path folder) throws IOException {
        String real = String.join(" ", BrokerProcess.command(List.of(), folder, System.getenv()));
        Path engine = folder.resolve("engine");
        Files.writeString(engine, "#!/bin/sh\nwhile [ \"$1\" != minibroker ]; do shift; done\nshift 2\nexec " + real + " \"$@\"\n");
        assertTrue(engine.toFile().setExecutable(true));
        try (Broker own = Broker.start(List.of(engine.toString(), "run", "minibroker", "minibroker"), List.of())) {
            own.produce("orders", "first");
            assertEquals(1, own.expect("orders").size());
        }
    }

    /** A process that starts a broker, and waits to be killed. */
    static final class Killed {
        public static void main(String[] arguments) throws IOException {
            System.out.println(Broker.start().bootstrapServers());
            System.in.read();
        }
    }

    @Test
    void noBrokerIsLeftBehind(@TempDir Path folder) throws IOException, InterruptedException {
        String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
        String classes = System.getProperty("surefire.test.class.path", System.getProperty("java.class.path"));
        ProcessBuilder builder = new ProcessBuilder(java, "-Djava.io.tmpdir=" + folder, "-XX:-UsePerfData", "-cp", classes,
            Killed.class.getName()).redirectError(ProcessBuilder.Redirect.INHERIT);
        builder.environment().put("TMPDIR", folder.toString());
        Process child = builder.start();
        String address = child.inputReader().readLine();
        assertTrue(address != null && folder.toFile().list().length > 0);
        child.destroyForcibly().waitFor();
        for (int left = 200; folder.toFile().list().length > 0; left--) {
            assertTrue(left > 0, "the broker runs still at " + address);
            Thread.sleep(50);
        }
    }
}
