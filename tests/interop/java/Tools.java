import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * mqadmin as it is, many times in one process: a process of its own for each subcommand would mean seconds of starting
 * for each. One subcommand runs at a time, because what it prints is caught where the whole process prints.
 */
final class Tools {
    void register(Map<String, Hand.Deed> deeds) {
        deeds.put("mqadmin", this::mqadmin);
    }

    synchronized Object mqadmin(Command command) throws Exception {
        String[] arguments = command.list("arguments").stream().map(Object::toString).toArray(String[]::new);
        PrintStream out = System.out;
        PrintStream err = System.err;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        ByteArrayOutputStream complained = new ByteArrayOutputStream();
        System.setOut(new PrintStream(printed, true, "UTF-8"));
        System.setErr(new PrintStream(complained, true, "UTF-8"));
        boolean ended;
        try {
            forgetSubcommands();
            // Some subcommands repeat themselves until they are stopped.
            Thread tool = new Thread(() -> MQAdminStartup.main0(arguments, null), "mqadmin " + arguments[0]);
            tool.setDaemon(true);
            tool.start();
            tool.join(command.number("limit", 60000));
            ended = !tool.isAlive();
            if (!ended) {
                tool.interrupt();
                tool.join(5000);
            }
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
        Map<String, Object> said = new LinkedHashMap<>();
        said.put("printed", printed.toString("UTF-8"));
        said.put("complained", complained.toString("UTF-8"));
        said.put("ended", ended);
        return said;
    }

    /** A subcommand may keep a client that it has shut down: mqadmin as a process never runs one twice. */
    static void forgetSubcommands() throws ReflectiveOperationException {
        for (Field field : MQAdminStartup.class.getDeclaredFields()) {
            if (List.class.isAssignableFrom(field.getType())) {
                field.setAccessible(true);
                ((List<?>) field.get(null)).clear();
            }
        }
    }
}
