package minibroker;

import java.lang.annotation.*;
import org.junit.jupiter.api.extension.ExtendWith;

/** Gives the tests of a class a {@link Broker} as a parameter. Each test finds it empty. */
@Inherited
@Target(ElementType.TYPE)
@Retention(RetentionPolicy.RUNTIME)
@ExtendWith(MinibrokerExtension.class)
public @interface MinibrokerTest {
    /** The number of brokers in the cluster. */
    int nodes() default 1;

    /** Settings by Kafka's names: {@code "num.partitions=3"}. */
    String[] settings() default {};

    /** SSL, SASL_PLAINTEXT or SASL_SSL, with certificates and users of the broker's own. */
    String security() default "";

    /** Users who can log in: {@code "alice:wonderland"}. */
    String[] users() default {};

    /** Whether there is a schema registry. */
    boolean registry() default false;

    /** A release of Apache Kafka, such as 2.8, as which the broker answers. */
    String emulate() default "";

    /** Whether others use the broker at the same time. It is never reset; take topics from {@link Broker#topic()}. */
    boolean shared() default false;

    /** A system property that has the broker's addresses, such as {@code spring.kafka.bootstrap-servers}. */
    String property() default "";
}
