import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Apache's tools. mqadmin as it is, many times in one process: a process of its own for each subcommand would mean seconds of starting
 * for each. One subcommand runs at a time, because what it prints is caught where the whole process prints.
 */
final class Tools {
    void register(Map<String, Hand.Deed> deeds) {
        deeds.put("mqadmin", this::mqadmin);
        deeds.put("admin", this::call);
    }

    synchronized Object mqadmin(Command command) throws Exception {
        String[] arguments = command.list("arguments").stream().map(Object::toString).toArray(String[]::new);
        PrintStream out = System.out;
        PrintStream err = System.err;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        ByteArrayOutputStream complained = new ByteArrayOutputStream();
        System.setOut(new PrintStream(printed, true, "UTF-8"));
        System.setErr(new PrintStream(complained, true, "UTF-8"));
        Map<String, Object> said = new LinkedHashMap<>();
        try {
            forgetSubcommands();
            // Some subcommands repeat themselves until they are stopped.
            Thread tool = new Thread(() -> MQAdminStartup.main0(arguments, null), "mqadmin");
            tool.setDaemon(true);
            tool.start();
            tool.join(command.number("limit", 60000));
            boolean ended = !tool.isAlive();
            said.put("printed", printed.toString("UTF-8"));
            said.put("complained", complained.toString("UTF-8"));
            said.put("ended", ended);
            if (!ended) {
                // What it says of being stopped is not worth knowing, and must not be taken for the next one's words.
                tool.interrupt();
                tool.join(60000);
            }
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
        return said;
    }

    /** A method of Apache's admin client, as the RocketMQ dashboard calls it, and its answer as JSON. */
    Object call(Command command) throws Exception {
        List<Object> given = command.list("arguments");
        for (Method method : DefaultMQAdminExt.class.getMethods()) {
            if (method.getName().equals(command.text("method")) && method.getParameterCount() == given.size()) {
                Object[] arguments = new Object[given.size()];
                for (int i = 0; i < arguments.length; i++) {
                    arguments[i] = fitted(given.get(i), method.getParameterTypes()[i]);
                }
                try {
                    return RemotingSerializable.toJson(method.invoke(Asking.shared(), arguments), true);
                } catch (InvocationTargetException refused) {
                    return RemotingSerializable.toJson(Hand.problem(refused.getCause()), true);
                }
            }
        }
        throw new IllegalArgumentException("the admin client has no such method: " + command.text("method"));
    }

    /** JSON as the method wants it: a message is found by its id, settings are read as the dashboard's forms fill them. */
    @SuppressWarnings("unchecked")
    static Object fitted(Object given, Class<?> type) throws Exception {
        if (type == MessageExt.class) {
            Map<String, Object> message = (Map<String, Object>) given;
            return Asking.shared().viewMessage((String) message.get("topic"), (String) message.get("id"));
        }
        if (type == Set.class) {
            return new LinkedHashSet<>((List<Object>) given);
        }
        if (type == TopicConfig.class || type.getSimpleName().equals("SubscriptionGroupConfig")) { // elsewhere in 4.9
            return RemotingSerializable.fromJson(RemotingSerializable.toJson(given, false), type);
        }
        if (type == MessageQueue.class) {
            Map<String, Object> queue = (Map<String, Object>) given;
            return new MessageQueue((String) queue.get("topic"), (String) queue.get("broker"), ((Number) queue.get("queue")).intValue());
        }
        if (given instanceof Number) {
            Number number = (Number) given;
            return type == int.class ? (Object) number.intValue() : (Object) number.longValue();
        }
        return given;
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
