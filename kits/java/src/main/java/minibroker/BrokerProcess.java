package minibroker;

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;

/** A process of minibroker, which ends when its stdin does: a pipe from this process, however this ends. */
final class BrokerProcess {
    private static final long PATIENCE_MS = 300_000; // for an image or a package to come from a registry
    private static final long PAUSE_MS = 5;
    private static final boolean IS_POSIX = File.separatorChar == '/';
    private static final long ENDING_MS = 2000; // for a process to end whose connections have ended

    final String control;
    private final Process process;
    private final Thread passing;
    private volatile String said = "";

    /** Starts a broker, and waits until it listens. */
    BrokerProcess(List<String> command, List<String> options) {
        try {
            Path directory = Files.createTempDirectory("minibroker-kit-");
            Path ready = directory.resolve("ready");
            try {
                List<String> words = new ArrayList<>(command(command, directory, System.getenv()));
                words.addAll(List.of("serve", "--until-stdin-closes", "--temporary", "--ready-file", ready.toString(),
                    "--log-level", "warning", "--control", "0", "--set", "listeners=PLAINTEXT://127.0.0.1:0"));
                words.addAll(options);
                process = new ProcessBuilder(words).redirectOutput(ProcessBuilder.Redirect.DISCARD).start();
                passing = new Thread(this::passOn, "stderr of minibroker");
                passing.setDaemon(true);
                passing.start();
                control = address(ready);
            } finally {
                Files.deleteIfExists(ready);
                Files.deleteIfExists(directory);
            }
        } catch (IOException e) {
            throw new MinibrokerError("NOT_STARTED", "minibroker did not start: " + e.getMessage());
        }
    }

    /** Returns the words that start minibroker here. */
    static List<String> command(List<String> own, Path directory, Map<String, String> environment) throws IOException {
        String named = environment.getOrDefault("MINIBROKER", "").strip();
        if (!own.isEmpty() || !named.isEmpty()) {
            return own.isEmpty() ? List.of(named.split("\\s+")) : own;
        }
        String user = IS_POSIX ? "--user=" + Files.getAttribute(directory, "unix:uid") : "--init";
        List<List<String>> known = new ArrayList<>(List.of(List.of("minibroker"),
            List.of("uvx", "--from", "minibroker[control,registry]", "minibroker")));
        for (String engine : List.of("docker", "podman")) {
            known.add(List.of(engine, "run", "--rm", "--interactive", "--network=host", user,
                "--volume=" + directory + ":" + directory, "minibroker", "minibroker"));
        }
        String[] folders = environment.getOrDefault("PATH", "").split(File.pathSeparator);
        for (List<String> words : known) {
            String program = words.get(0) + (IS_POSIX ? "" : ".exe");
            if (Arrays.stream(folders).anyMatch(folder -> Files.isExecutable(Path.of(folder, program)))) {
                return words;
            }
        }
        throw new IOException("there is no minibroker: install it, or say in MINIBROKER what starts it; "
            + "uvx, docker and podman are not there, either");
    }

    private void passOn() {
        try (BufferedReader lines = process.errorReader()) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                System.err.println(line);
                said = line.replaceFirst("^minibroker: ", "");
            }
        } catch (IOException e) {
            said = e.getMessage();
        }
    }

    private String address(Path ready) throws IOException {
        for (long until = System.currentTimeMillis() + PATIENCE_MS; System.currentTimeMillis() < until; ) {
            for (String line : Files.exists(ready) ? Files.readAllLines(ready) : List.<String>of()) {
                if (line.startsWith("control ")) {
                    return line.substring("control ".length());
                }
            }
            if (hasEnded(PAUSE_MS)) {
                throw new IOException(said);
            }
        }
        process.destroy();
        throw new IOException("nothing within " + PATIENCE_MS / 1000 + " s, but " + said);
    }

    private boolean hasEnded(long waitMs) {
        long until = System.currentTimeMillis() + waitMs;
        while (passing.isAlive() && System.currentTimeMillis() < until) {
            LockSupport.parkNanos(1_000_000);
        }
        return !passing.isAlive(); // its stderr has ended
    }

    /** Returns why a request has no answer. */
    String explained(IOException error) {
        return hasEnded(ENDING_MS) ? "minibroker has ended: " + said : String.valueOf(error);
    }

    void stop() {
        try {
            process.getOutputStream().close();
        } catch (IOException e) {
            process.destroy(); // its pipe is broken
        }
    }
}
