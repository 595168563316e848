import com.alibaba.fastjson2.JSON;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.junit.runner.Description;
import org.junit.runner.JUnitCore;
import org.junit.runner.Request;
import org.junit.runner.manipulation.Filter;
import org.junit.runner.notification.Failure;
import org.junit.runner.notification.RunListener;

/**
 * Runs one JUnit 4 class, or the named methods of it, and writes a line of JSON for each event into a file.
 *
 * <p>Arguments: the file, the class, methods. Events: planned (once for each test, before the first one starts), started,
 * then one of passed, failed, assumed (an assumption did not hold), ignored. A failure outside of any test, for instance
 * in a method that prepares the class, carries no test.
 */
public final class RunTests extends RunListener {
    private static final int ERROR_CHARACTERS = 4000;

    private final PrintWriter events;
    private long began = System.nanoTime();
    private boolean isOver;

    private RunTests(PrintWriter events) {
        this.events = events;
    }

    public static void main(String[] arguments) throws Exception {
        Request request = Request.aClass(Class.forName(arguments[1], false, RunTests.class.getClassLoader()));
        Set<String> methods = Set.copyOf(Arrays.asList(arguments).subList(2, arguments.length));
        if (!methods.isEmpty()) {
            requireAll(methods, request.getRunner().getDescription());
            request = request.filterWith(named(methods));
        }
        try (PrintWriter events = new PrintWriter(Files.newBufferedWriter(Paths.get(arguments[0])))) {
            RunTests listener = new RunTests(events);
            for (Description test : testsBelow(request.getRunner().getDescription())) {
                listener.write("planned", test, null);
            }
            JUnitCore core = new JUnitCore();
            core.addListener(listener);
            core.run(request);
        }
        // The clients that tests leave behind have threads that would go on.
        Runtime.getRuntime().halt(0);
    }

    private static void requireAll(Set<String> methods, Description type) {
        Set<String> unknown = new TreeSet<>(methods);
        testsBelow(type).forEach(test -> unknown.remove(test.getMethodName()));
        if (!unknown.isEmpty()) {
            System.out.println("no tests of " + type.getDisplayName() + ": " + String.join(", ", unknown));
            Runtime.getRuntime().halt(1);
        }
    }

    private static Filter named(Set<String> methods) {
        return new Filter() {
            @Override
            public boolean shouldRun(Description description) {
                return testsBelow(description).stream().anyMatch(test -> methods.contains(test.getMethodName()));
            }

            @Override
            public String describe() {
                return String.join(", ", methods);
            }
        };
    }

    private static List<Description> testsBelow(Description description) {
        List<Description> tests = new ArrayList<>();
        if (description.isTest()) {
            tests.add(description);
        }
        description.getChildren().forEach(child -> tests.addAll(testsBelow(child)));
        return tests;
    }

    @Override
    public void testStarted(Description test) {
        began = System.nanoTime();
        isOver = false;
        write("started", test, null);
    }

    @Override
    public void testFailure(Failure failure) {
        isOver = true;
        write("failed", failure.getDescription(), failure.getException());
    }

    @Override
    public void testAssumptionFailure(Failure failure) {
        isOver = true;
        write("assumed", failure.getDescription(), failure.getException());
    }

    @Override
    public void testIgnored(Description test) {
        write("ignored", test, null);
    }

    @Override
    public void testFinished(Description test) {
        if (!isOver) {
            write("passed", test, null);
        }
    }

    private synchronized void write(String event, Description test, Throwable error) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("event", event);
        line.put("class", test.getTestClass() == null ? test.getClassName() : test.getTestClass().getSimpleName());
        line.put("test", test.getMethodName() == null ? "" : test.getMethodName());
        line.put("seconds", Math.round((System.nanoTime() - began) / 1e7) / 100.0);
        line.put("error", error == null ? "" : stackTrace(error));
        events.println(JSON.toJSONString(line));
        events.flush();
        System.out.printf("%s %s %s%n", event, test.getDisplayName(), error == null ? "" : error);
    }

    private static String stackTrace(Throwable error) {
        StringWriter text = new StringWriter();
        error.printStackTrace(new PrintWriter(text));
        return text.getBuffer().substring(0, Math.min(ERROR_CHARACTERS, text.getBuffer().length()));
    }
}
