package minibroker;

import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.stream.Stream;
import org.junit.jupiter.api.extension.*;
import org.junit.platform.commons.support.AnnotationSupport;

/** What {@link MinibrokerTest} does: a broker for each class, and a reset before each test but the first. */
final class MinibrokerExtension implements BeforeAllCallback, BeforeEachCallback, AfterAllCallback, ParameterResolver {
    private static final ExtensionContext.Namespace OURS = ExtensionContext.Namespace.create(MinibrokerExtension.class);
    private static final Map<List<String>, Deque<Broker>> IDLE = new ConcurrentHashMap<>(); // by their options
    private static final Map<List<String>, Broker> SHARED = new ConcurrentHashMap<>();

    private static Broker started(List<String> options) {
        return Broker.start(List.of(), options);
    }

    private static Deque<Broker> idle(List<String> options) {
        return IDLE.computeIfAbsent(options, key -> new ConcurrentLinkedDeque<>());
    }

    private static List<String> options(MinibrokerTest asked) {
        List<String> words = new ArrayList<>(List.of("--nodes", String.valueOf(asked.nodes())));
        Stream.of(asked.settings()).forEach(each -> words.addAll(List.of("--set", each)));
        Stream.of(asked.users()).forEach(each -> words.addAll(List.of("--user", each)));
        Map.of("--security", asked.security(), "--emulate", asked.emulate(), "--registry", asked.registry() ? "0" : "")
            .forEach((name, value) -> words.addAll(value.isEmpty() ? List.of() : List.of(name, value)));
        return words;
    }

    private static Optional<MinibrokerTest> asked(ExtensionContext context) { // a class inside another need not have it
        return AnnotationSupport.findAnnotation(context.getRequiredTestClass(), MinibrokerTest.class);
    }

    private static Broker broker(ExtensionContext context) {
        return context.getStore(OURS).get("broker", Broker.class);
    }

    @Override
    public void beforeAll(ExtensionContext context) {
        asked(context).ifPresent(asked -> {
            List<String> options = options(asked);
            Broker idle = asked.shared() ? SHARED.computeIfAbsent(options, MinibrokerExtension::started)
                : idle(options).pollFirst();
            Broker broker = idle == null ? started(options) : idle;
            broker.isShared = asked.shared();
            context.getStore(OURS).put("broker", broker);
            if (!asked.property().isEmpty()) {
                System.setProperty(asked.property(), broker.bootstrapServers());
            }
        });
    }

    @Override
    public void beforeEach(ExtensionContext context) {
        broker(context).empty();
    }

    @Override
    public void afterAll(ExtensionContext context) {
        asked(context).filter(asked -> !asked.shared()).ifPresent(asked -> {
            Broker broker = broker(context);
            if (broker.isChanged) {
                broker.close();
            } else {
                idle(options(asked)).addFirst(broker);
            }
        });
    }

    @Override
    public boolean supportsParameter(ParameterContext parameter, ExtensionContext context) {
        return parameter.getParameter().getType() == Broker.class;
    }

    @Override
    public Object resolveParameter(ParameterContext parameter, ExtensionContext context) {
        return broker(context);
    }
}
