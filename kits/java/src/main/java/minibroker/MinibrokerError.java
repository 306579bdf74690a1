package minibroker;

/** A verb that failed. The message of a wait says what was there instead. */
public final class MinibrokerError extends AssertionError {
    private static final long serialVersionUID = 1;

    /** EXPIRED for a wait, or the name that Kafka has for the error. */
    public final String code;

    MinibrokerError(String code, String message) {
        super(message);
        this.code = code;
    }
}
