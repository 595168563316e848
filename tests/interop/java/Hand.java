import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;

/**
 * A hand moves the real client as it is told: a line of JSON in for each deed, a line of JSON out with what came of it.
 * Deeds run side by side; the id of a line says which answer belongs to it. It compiles with the 4.9 and the 5.x client.
 */
public final class Hand {
    interface Deed {
        Object on(Command command) throws Exception;
    }

    static final Map<String, Deed> DEEDS = new HashMap<>();
    static final AtomicInteger INSTANCES = new AtomicInteger();
    static String namesrv;
    static String broker;

    public static void main(String[] arguments) throws Exception {
        namesrv = arguments[0];
        broker = arguments[1];
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        System.setOut(System.err);
        new Sending().register(DEEDS);
        new Listening().register(DEEDS);
        new Pulling().register(DEEDS);
        new Asking().register(DEEDS);
        new Tools().register(DEEDS);
        ExecutorService workers = Executors.newCachedThreadPool();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            Command command = new Command(RemotingSerializable.fromJson(line, Map.class));
            workers.execute(() -> {
                String answer = RemotingSerializable.toJson(answer(command), false);
                synchronized (out) {
                    out.println(answer);
                    out.flush();
                }
            });
        }
        System.exit(0);
    }

    static Map<String, Object> answer(Command command) {
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("id", command.number("id", 0));
        try {
            Deed deed = DEEDS.get(command.text("do"));
            if (deed == null) {
                throw new IllegalArgumentException("no such deed: " + command.text("do"));
            }
            answer.put("result", deed.on(command));
        } catch (Throwable problem) {
            answer.put("error", problem(problem));
        }
        return answer;
    }

    static Map<String, Object> problem(Throwable problem) {
        Map<String, Object> said = new LinkedHashMap<>();
        said.put("kind", problem.getClass().getSimpleName());
        said.put("message", String.valueOf(problem.getMessage()));
        if (problem instanceof MQBrokerException) {
            said.put("code", ((MQBrokerException) problem).getResponseCode());
        } else if (problem instanceof MQClientException) {
            said.put("code", ((MQClientException) problem).getResponseCode());
        } else {
            problem.printStackTrace();
        }
        return said;
    }

    /** Signs with the access key that this process was given, if any; its class lives in another jar of 4.9. */
    static RPCHook hook() {
        String key = System.getenv("HAND_ACCESS_KEY");
        if (key == null) {
            return null;
        }
        try {
            Class<?> type = Class.forName("org.apache.rocketmq.acl.common.SessionCredentials");
            Object credentials = type.getConstructor(String.class, String.class).newInstance(key, System.getenv("HAND_SECRET_KEY"));
            return (RPCHook) Class.forName("org.apache.rocketmq.acl.common.AclClientRPCHook").getConstructor(type).newInstance(credentials);
        } catch (ReflectiveOperationException missing) {
            throw new IllegalStateException(missing);
        }
    }

    static <T extends ClientConfig> T configured(T client) {
        client.setNamesrvAddr(namesrv);
        client.setClientIP("127.0.0.1");
        client.setInstanceName(ProcessHandle.current().pid() + "i" + INSTANCES.incrementAndGet());
        client.setPollNameServerInterval(1000); // a new topic is seen after a second, not after thirty
        // The client drops a heartbeat when another is under way, and its pulls are then refused until the next one.
        client.setHeartbeatBrokerInterval(3000);
        return client;
    }

    static boolean await(BooleanSupplier done, long timeout) throws InterruptedException {
        long end = System.currentTimeMillis() + timeout;
        while (!done.getAsBoolean()) {
            if (System.currentTimeMillis() > end) {
                return false;
            }
            Thread.sleep(10);
        }
        return true;
    }
}
