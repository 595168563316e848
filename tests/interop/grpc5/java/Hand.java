import com.google.gson.Gson;
import com.google.gson.reflect.TypeToken;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.function.BooleanSupplier;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientConfigurationBuilder;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.RecallReceipt;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/** A hand around RocketMQ's Java client of the 5.x line; the deeds are those of the other hands in this folder. */
public final class Hand {
    static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    static final Map<String, Producer> PRODUCERS = new HashMap<>();
    static final Map<String, SimpleConsumer> SIMPLE = new ConcurrentHashMap<>();
    static final Map<String, PushConsumer> PUSH = new ConcurrentHashMap<>();
    static final Map<String, List<Map<String, Object>>> CONSUMED = new ConcurrentHashMap<>();
    static final Map<String, MessageView> MESSAGES = new ConcurrentHashMap<>();
    static final List<String> CHECKED = new CopyOnWriteArrayList<>();
    static String endpoints;
    static boolean ssl;

    public static void main(String[] arguments) throws Exception {
        endpoints = arguments[0];
        ssl = arguments.length > 1 && arguments[1].equals("tls");
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        System.setOut(System.err);
        Gson gson = new Gson();
        ExecutorService workers = Executors.newCachedThreadPool();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            Map<String, Object> command = gson.fromJson(line, new TypeToken<Map<String, Object>>() { }.getType());
            workers.execute(() -> {
                String answer = gson.toJson(answer(command));
                synchronized (out) {
                    out.println(answer);
                    out.flush();
                }
            });
        }
        Runtime.getRuntime().halt(0);
    }

    static Map<String, Object> answer(Map<String, Object> command) {
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("id", number(command, "id", 0));
        try {
            answer.put("result", deed(command));
        } catch (Throwable problem) {
            problem.printStackTrace();
            Map<String, Object> said = new LinkedHashMap<>();
            said.put("kind", problem.getClass().getSimpleName());
            said.put("message", String.valueOf(problem.getMessage()));
            java.util.regex.Matcher code = java.util.regex.Pattern.compile("response-code=(\\d+)")
                .matcher(String.valueOf(problem.getMessage()));
            if (code.find()) {
                said.put("code", Integer.parseInt(code.group(1)));
            }
            answer.put("error", said);
        }
        return answer;
    }

    static Object deed(Map<String, Object> command) throws Exception {
        String name = text(command, "name", "");
        switch (text(command, "do", "")) {
            case "send": {
                SendReceipt receipt = producer(text(command, "topic", "")).send(message(command, text(command, "body", "")));
                Map<String, Object> sent = new LinkedHashMap<>();
                sent.put("id", receipt.getMessageId().toString());
                sent.put("recall", receipt.getRecallHandle());
                return sent;
            }
            case "send_many": {
                List<String> ids = new ArrayList<>();
                for (Object body : (List<?>) command.get("bodies")) {
                    ids.add(producer(text(command, "topic", "")).send(message(command, body.toString())).getMessageId().toString());
                }
                return ids;
            }
            case "transaction":
                return transaction(command);
            case "checked":
                await(() -> CHECKED.size() >= number(command, "number", 1), number(command, "wait_ms", 0));
                return new ArrayList<>(CHECKED);
            case "recall": {
                RecallReceipt receipt = producer(text(command, "topic", ""))
                    .recallMessage(text(command, "topic", ""), text(command, "handle", ""));
                return Collections.singletonMap("id", receipt.getMessageId().toString());
            }
            case "simple":
                SIMPLE.put(name, PROVIDER.newSimpleConsumerBuilder()
                    .setClientConfiguration(configuration())
                    .setConsumerGroup(text(command, "group", ""))
                    .setAwaitDuration(Duration.ofMillis(number(command, "await_ms", 5000)))
                    .setSubscriptionExpressions(Collections.singletonMap(text(command, "topic", ""), expression(command)))
                    .build());
                return null;
            case "receive":
                return receive(command, SIMPLE.get(name));
            case "ack":
                for (Object id : (List<?>) command.get("ids")) {
                    SIMPLE.get(name).ack(MESSAGES.get(id.toString()));
                }
                return null;
            case "change":
                SIMPLE.get(name).changeInvisibleDuration(
                    MESSAGES.get(text(command, "id_of", "")), Duration.ofMillis(number(command, "invisible_ms", 0)));
                return null;
            case "push":
                PUSH.put(name, push(command, name));
                return null;
            case "pushed": {
                List<Map<String, Object>> consumed = CONSUMED.get(name);
                await(() -> consumed.size() >= number(command, "number", 1), number(command, "wait_ms", 0));
                return new ArrayList<>(consumed);
            }
            case "close":
                if (SIMPLE.containsKey(name)) {
                    SIMPLE.remove(name).close();
                } else {
                    PUSH.remove(name).close();
                }
                return null;
            default:
                throw new IllegalArgumentException("no such deed: " + command.get("do"));
        }
    }

    static ClientConfiguration configuration() {
        ClientConfigurationBuilder builder = ClientConfiguration.newBuilder()
            .setEndpoints(endpoints)
            .enableSsl(ssl)
            .setRequestTimeout(Duration.ofSeconds(10));
        String key = System.getenv("HAND_ACCESS_KEY");
        if (key != null) {
            builder.setCredentialProvider(new StaticSessionCredentialsProvider(key, System.getenv("HAND_SECRET_KEY")));
        }
        return builder.build();
    }

    static synchronized Producer producer(String topic) throws ClientException {
        if (!PRODUCERS.containsKey(topic)) {
            PRODUCERS.put(topic, PROVIDER.newProducerBuilder()
                .setClientConfiguration(configuration())
                .setTopics(topic)
                .setTransactionChecker(view -> {
                    CHECKED.add(StandardCharsets.UTF_8.decode(view.getBody()).toString());
                    String outcome = view.getProperties().getOrDefault("outcome", "unknown");
                    return outcome.equals("commit") ? TransactionResolution.COMMIT
                        : outcome.equals("rollback") ? TransactionResolution.ROLLBACK : TransactionResolution.UNKNOWN;
                })
                .build());
        }
        return PRODUCERS.get(topic);
    }

    static Message message(Map<String, Object> command, String body) {
        MessageBuilder builder = PROVIDER.newMessageBuilder()
            .setTopic(text(command, "topic", ""))
            .setBody(body.getBytes(StandardCharsets.UTF_8));
        if (command.get("tag") != null) {
            builder.setTag(text(command, "tag", ""));
        }
        if (command.get("keys") != null) {
            builder.setKeys(((List<?>) command.get("keys")).stream().map(Object::toString).toArray(String[]::new));
        }
        if (command.get("message_group") != null) {
            builder.setMessageGroup(text(command, "message_group", ""));
        }
        if (command.get("delay_ms") != null) {
            builder.setDeliveryTimestamp(System.currentTimeMillis() + number(command, "delay_ms", 0));
        }
        if (command.get("properties") != null) {
            ((Map<?, ?>) command.get("properties")).forEach((key, value) -> builder.addProperty(key.toString(), value.toString()));
        }
        return builder.build();
    }

    static Object transaction(Map<String, Object> command) throws ClientException {
        Producer producer = producer(text(command, "topic", ""));
        Transaction transaction = producer.beginTransaction();
        SendReceipt receipt = producer.send(message(command, text(command, "body", "")), transaction);
        String end = text(command, "end", "none");
        if (end.equals("commit")) {
            transaction.commit();
        } else if (end.equals("rollback")) {
            transaction.rollback();
        }
        return Collections.singletonMap("id", receipt.getMessageId().toString());
    }

    static FilterExpression expression(Map<String, Object> command) {
        if (command.get("sql") != null) {
            return new FilterExpression(text(command, "sql", ""), FilterExpressionType.SQL92);
        }
        return new FilterExpression(text(command, "tags", "*"), FilterExpressionType.TAG);
    }

    static Object receive(Map<String, Object> command, SimpleConsumer consumer) throws ClientException {
        List<Map<String, Object>> found = new ArrayList<>();
        long end = System.currentTimeMillis() + number(command, "wait_ms", 0);
        while (found.size() < number(command, "number", 1) && System.currentTimeMillis() < end) {
            for (MessageView view : consumer.receive(
                (int) number(command, "max", 16), Duration.ofMillis(number(command, "invisible_ms", 15000)))) {
                MESSAGES.put(view.getMessageId().toString(), view);
                found.add(shown(view));
            }
        }
        return found;
    }

    static PushConsumer push(Map<String, Object> command, String name) throws ClientException {
        List<Map<String, Object>> consumed = new CopyOnWriteArrayList<>();
        Map<String, Long> failures = new ConcurrentHashMap<>();
        if (command.get("failures") != null) {
            ((Map<?, ?>) command.get("failures")).forEach((body, times) -> failures.put(body.toString(), ((Number) times).longValue()));
        }
        CONSUMED.put(name, consumed);
        return PROVIDER.newPushConsumerBuilder()
            .setClientConfiguration(configuration())
            .setConsumerGroup(text(command, "group", ""))
            .setSubscriptionExpressions(Collections.singletonMap(text(command, "topic", ""), expression(command)))
            .setMessageListener(view -> {
                String body = StandardCharsets.UTF_8.decode(view.getBody().duplicate()).toString();
                try {
                    Thread.sleep(number(command, "work_ms", 0));
                } catch (InterruptedException stopped) {
                    return ConsumeResult.FAILURE;
                }
                consumed.add(shown(view));
                if (failures.getOrDefault(body, 0L) > 0) {
                    failures.merge(body, -1L, Long::sum);
                    return ConsumeResult.FAILURE;
                }
                return ConsumeResult.SUCCESS;
            })
            .build();
    }

    static Map<String, Object> shown(MessageView view) {
        Map<String, Object> shown = new LinkedHashMap<>();
        shown.put("id", view.getMessageId().toString());
        shown.put("topic", view.getTopic());
        shown.put("body", StandardCharsets.UTF_8.decode(view.getBody().duplicate()).toString());
        shown.put("tag", view.getTag().orElse(null));
        List<String> keys = new ArrayList<>((Collection<String>) view.getKeys());
        Collections.sort(keys);
        shown.put("keys", keys);
        shown.put("properties", view.getProperties());
        shown.put("group", view.getMessageGroup().orElse(null));
        shown.put("attempt", view.getDeliveryAttempt());
        shown.put("at", System.currentTimeMillis());
        return shown;
    }

    static String text(Map<String, Object> command, String name, String otherwise) {
        return command.get(name) == null ? otherwise : command.get(name).toString();
    }

    static long number(Map<String, Object> command, String name, long otherwise) {
        return command.get(name) == null ? otherwise : ((Number) command.get(name)).longValue();
    }

    static void await(BooleanSupplier done, long millis) throws InterruptedException {
        long end = System.currentTimeMillis() + millis;
        while (!done.getAsBoolean() && System.currentTimeMillis() < end) {
            Thread.sleep(10);
        }
    }
}
