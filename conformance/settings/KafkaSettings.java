import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.StringReader;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.DynamicConfig;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.storage.internals.log.LogConfig;

/** What Apache Kafka knows of its settings, as JSON on stdout, for questions that come as JSON on stdin. */
public class KafkaSettings {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        JsonNode questions = JSON.readTree(System.in);
        Map<String, Object> answers = new LinkedHashMap<>();
        answers.put("broker", definitions(AbstractKafkaConfig.CONFIG_DEF));
        answers.put("topic", definitions(LogConfig.configDefCopy()));
        answers.put("quotas", DynamicConfig.Broker.names());
        answers.put("dynamic", DynamicBrokerConfig.dynamicConfigUpdateModes());
        answers.put("synonyms", synonyms());
        answers.put("topic values", topicValues(questions.get("topic values")));
        answers.put("broker values", brokerValues(questions.get("broker values")));
        answers.put("properties", properties(questions.get("properties")));
        JSON.writeValue(System.out, answers);
    }

    static Map<String, Object> definitions(ConfigDef definition) {
        Map<String, Object> all = new LinkedHashMap<>();
        for (ConfigDef.ConfigKey key : definition.configKeys().values()) {
            Map<String, Object> one = new LinkedHashMap<>();
            one.put("type", key.type.name());
            one.put("required", !key.hasDefault());
            one.put("default", key.hasDefault() ? ConfigDef.convertToString(key.defaultValue, key.type) : null);
            one.put("internal", key.internalConfig);
            all.put(key.name, one);
        }
        return all;
    }

    static Map<String, Object> synonyms() {
        Map<String, Object> all = new LinkedHashMap<>();
        ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS.forEach((topic, brokers) -> {
            List<String> names = new ArrayList<>();
            brokers.forEach(broker -> names.add(broker.name()));
            all.put(topic, names);
        });
        return all;
    }

    /** For each [name, text]: null if a topic can have it, or why not. */
    static List<String> topicValues(JsonNode pairs) {
        List<String> complaints = new ArrayList<>();
        for (JsonNode pair : pairs) {
            complaints.add(complaint(() -> LogConfig.validate(Map.of(pair.get(0).asText(), pair.get(1).asText()))));
        }
        return complaints;
    }

    static List<String> brokerValues(JsonNode pairs) {
        List<String> complaints = new ArrayList<>();
        for (JsonNode pair : pairs) {
            ConfigDef.ConfigKey key = AbstractKafkaConfig.CONFIG_DEF.configKeys().get(pair.get(0).asText());
            complaints.add(complaint(() -> {
                Object value = ConfigDef.parseType(key.name, pair.get(1).asText(), key.type);
                if (key.validator != null) key.validator.ensureValid(key.name, value);
            }));
        }
        return complaints;
    }

    static String complaint(Runnable check) {
        try {
            check.run();
            return null;
        } catch (RuntimeException error) {
            return error.getMessage();
        }
    }

    /** For each text: its pairs, or null if Java refuses it. */
    static List<Map<String, String>> properties(JsonNode texts) throws Exception {
        List<Map<String, String>> all = new ArrayList<>();
        for (JsonNode text : texts) {
            Properties properties = new Properties();
            try {
                properties.load(new StringReader(text.asText()));
                Map<String, String> pairs = new LinkedHashMap<>();
                properties.stringPropertyNames().forEach(name -> pairs.put(name, properties.getProperty(name)));
                all.add(pairs);
            } catch (IllegalArgumentException refused) {
                all.add(null);
            }
        }
        return all;
    }
}
