package conformance;

import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.function.Predicate;
import org.apache.kafka.common.KafkaFuture;

/** What many steps expect. */
final class Expect {
    private static final long PATIENCE_MS = 30_000;

    private Expect() {}

    /** That a call fails with this kind of exception. */
    static void failure(Class<? extends Exception> kind, KafkaFuture<?> future) throws Exception {
        Object answer;
        try {
            answer = future.get();
        } catch (ExecutionException failure) {
            Differs.unless(kind.isInstance(failure.getCause()), "%s was expected: %s", kind, failure.getCause());
            return;
        }
        throw new Differs("%s was expected: %s", kind, answer);
    }

    /** That the answer is, or within a while becomes, one that is enough: a Kafka's broker learns later. */
    static <T> T eventually(Callable<T> ask, Predicate<T> enough, String what) throws Exception {
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        T answer = ask.call();
        while (!enough.test(answer)) {
            Differs.unless(System.currentTimeMillis() < deadline, "%s: %s", what, answer);
            Thread.sleep(20);
            answer = ask.call();
        }
        return answer;
    }
}
