import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Properties;
import org.apache.maven.cli.MavenCli;
import org.codehaus.plexus.classworlds.ClassWorld;

/**
 * Runs Maven, one project after the other, in one process: a start of Maven costs four times what it does for a project.
 *
 * A line of stdin has, with tabs between them, the file for what Maven prints, the project's folder, and Maven's
 * arguments; the line that answers it is the exit status.
 */
public final class Maven {
    private Maven() {}

    public static void main(String[] arguments) throws Exception {
        ClassWorld world = new ClassWorld("plexus.core", Maven.class.getClassLoader());
        Properties own = (Properties) System.getProperties().clone();
        PrintStream answers = System.out;
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\t");
            System.setProperties((Properties) own.clone()); // -D of the project before is no setting of this one
            System.setProperty(MavenCli.MULTIMODULE_PROJECT_DIRECTORY, words[1]);
            try (PrintStream out = new PrintStream(words[0], StandardCharsets.UTF_8)) {
                String[] asked = Arrays.copyOfRange(words, 2, words.length);
                answers.println(new MavenCli(world).doMain(asked, words[1], out, out));
            }
        }
        Runtime.getRuntime().halt(0);
    }
}
