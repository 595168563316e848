import java.util.Collections;
import java.util.List;
import java.util.Map;

/** One request to a hand: named values, with defaults where one may be left out. */
final class Command {
    private final Map<String, Object> values;

    @SuppressWarnings("unchecked")
    Command(Object values) {
        this.values = (Map<String, Object>) values;
    }

    boolean has(String name) {
        return values.get(name) != null;
    }

    String text(String name) {
        if (!has(name)) {
            throw new IllegalArgumentException("the command has no " + name);
        }
        return values.get(name).toString();
    }

    String text(String name, String otherwise) {
        return has(name) ? text(name) : otherwise;
    }

    long number(String name, long otherwise) {
        return has(name) ? ((Number) values.get(name)).longValue() : otherwise;
    }

    boolean flag(String name) {
        return has(name) && (Boolean) values.get(name);
    }

    @SuppressWarnings("unchecked")
    List<Object> list(String name) {
        return has(name) ? (List<Object>) values.get(name) : Collections.emptyList();
    }

    @SuppressWarnings("unchecked")
    Map<String, Object> map(String name) {
        return has(name) ? (Map<String, Object>) values.get(name) : Collections.emptyMap();
    }
}
