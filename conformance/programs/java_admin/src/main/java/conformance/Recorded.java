package conformance;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.Proxy;
import java.util.Arrays;
import java.util.Collection;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.Admin;

/** An admin client that knows which of its methods were called. */
final class Recorded {
    private final Set<String> called = new TreeSet<>();
    final Admin admin;

    Recorded(Admin real) {
        this.admin =
            (Admin)
                Proxy.newProxyInstance(
                    Admin.class.getClassLoader(),
                    new Class<?>[] {Admin.class},
                    (proxy, method, arguments) -> {
                        called.add(method.getName());
                        try {
                            return method.invoke(real, arguments);
                        } catch (InvocationTargetException failure) {
                            throw failure.getCause();
                        }
                    });
    }

    /** How many methods there are, once all of them have been called or are among those left out, and none is both. */
    int complete(Collection<String> leftOut) throws Differs {
        Set<String> all = new TreeSet<>();
        for (Method method : Admin.class.getMethods()) {
            if (!Modifier.isStatic(method.getModifiers())) {
                all.add(method.getName());
            }
        }
        Set<String> missing = new TreeSet<>(all);
        missing.removeAll(called);
        missing.removeAll(leftOut);
        Differs.unless(missing.isEmpty(), "nobody calls, and nobody leaves out, %s", missing);
        Set<String> both = new TreeSet<>(leftOut);
        both.removeIf(name -> all.contains(name) && !called.contains(name));
        Differs.unless(both.isEmpty(), "left out, but called or not there: %s", both);
        return called.size();
    }

    @Override
    public String toString() {
        return String.join(", ", Arrays.asList(called.toArray(new String[0])));
    }
}
