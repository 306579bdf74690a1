package billing;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;

/** A broker for tests, in a process of its own. */
final class Broker {
    /** Where clients reach it. */
    final String servers;

    private final String control;
    private final HttpClient http = HttpClient.newHttpClient();

    /** Starts a broker, which ends with this process. */
    Broker() {
        try {
            Path data = Files.createTempDirectory("billing");
            Process process = new ProcessBuilder("minibroker", "serve", "--control", "0", "--log-level", "warning",
                    "--set", "listeners=PLAINTEXT://127.0.0.1:0", "--set", "log.dirs=" + data)
                .redirectError(ProcessBuilder.Redirect.INHERIT)
                .start();
            Runtime.getRuntime().addShutdownHook(new Thread(process::destroy));
            BufferedReader lines = process.inputReader();
            servers = lastWord(lines.readLine());
            control = lastWord(lines.readLine());
        } catch (IOException e) {
            throw new IllegalStateException("the broker did not start", e);
        }
    }

    private static String lastWord(String line) {
        if (line == null) {
            throw new IllegalStateException("the broker did not start; it says why on stderr");
        }
        return line.substring(line.lastIndexOf(' ') + 1);
    }

    /** Calls a method of the test kit, and returns what it returns. */
    String ask(String path, String arguments) throws IOException, InterruptedException {
        HttpRequest request = HttpRequest.newBuilder(URI.create(control + "/v1/" + path))
            .header("content-type", "application/json")
            .POST(HttpRequest.BodyPublishers.ofString(arguments))
            .build();
        HttpResponse<String> answer = http.send(request, HttpResponse.BodyHandlers.ofString());
        if (answer.statusCode() >= 400) {
            throw new AssertionError(path + ": " + answer.body());
        }
        return answer.body();
    }
}
