import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.google.re2j.Pattern;
import com.google.re2j.PatternSyntaxException;
import java.util.ArrayList;
import java.util.List;

/** For each [pattern, [name, ...]] on stdin: the names that it matches as Apache Kafka's brokers do, or null if it is none. */
public class Matches {
    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        List<List<String>> answers = new ArrayList<>();
        for (JsonNode question : json.readTree(System.in)) {
            answers.add(matching(question.get(0).asText(), question.get(1)));
        }
        json.writeValue(System.out, answers);
    }

    static List<String> matching(String text, JsonNode names) {
        Pattern pattern;
        try {
            pattern = Pattern.compile(text);
        } catch (PatternSyntaxException none) {
            return null;
        }
        List<String> found = new ArrayList<>();
        for (JsonNode name : names) {
            if (pattern.matcher(name.asText()).matches()) {
                found.add(name.asText());
            }
        }
        return found;
    }
}
