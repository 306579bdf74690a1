package conformance;

/** What came is not what was expected; the message says where. */
final class Differs extends Exception {
    private static final long serialVersionUID = 1;

    Differs(String format, Object... values) {
        super(String.format(format, values));
    }

    static void unless(boolean same, String format, Object... values) throws Differs {
        if (!same) {
            throw new Differs(format, values);
        }
    }
}
