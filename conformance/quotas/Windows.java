import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.TokenBucket;
import org.apache.kafka.common.metrics.stats.WindowedSum;

/** For each [windows, seconds, bound, [[ms, value], ...]] on stdin: what Kafka's stats measure after each record. */
public class Windows {
    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        List<List<double[]>> answers = new ArrayList<>();
        for (JsonNode history : json.readTree(System.in)) {
            answers.add(measured(history));
        }
        json.writeValue(System.out, answers);
    }

    /** The rate, its window in ms, and the tokens. */
    static List<double[]> measured(JsonNode history) {
        MetricConfig config = new MetricConfig()
            .samples(history.get(0).asInt())
            .timeWindow(history.get(1).asInt(), TimeUnit.SECONDS)
            .quota(Quota.upperBound(history.get(2).asDouble()));
        Rate rate = new Rate(TimeUnit.SECONDS, new WindowedSum());
        TokenBucket bucket = new TokenBucket();
        List<double[]> all = new ArrayList<>();
        for (JsonNode record : history.get(3)) {
            long now = record.get(0).asLong();
            double value = record.get(1).asDouble();
            rate.record(config, value, now);
            bucket.record(config, value, now);
            all.add(new double[] {rate.measure(config, now), rate.windowSize(config, now), bucket.measure(config, now)});
        }
        return all;
    }
}
