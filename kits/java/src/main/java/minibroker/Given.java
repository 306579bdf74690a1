package minibroker;

import com.fasterxml.jackson.annotation.JsonValue;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;

/** Fields of a request. {@code T} is the class that sets them. */
public class Given<T> {
    private final Map<String, Object> fields = new LinkedHashMap<>();

    @SuppressWarnings("unchecked")
    T with(String name, Object value) {
        fields.put(name, value instanceof Duration duration ? duration.toNanos() / 1e6 : value); // in milliseconds
        return (T) this;
    }

    @JsonValue
    Map<String, Object> map() {
        return fields;
    }
}
