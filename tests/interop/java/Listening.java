import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Push consumers, and what they have seen. */
final class Listening {
    static final Map<String, Listener> LISTENERS = new ConcurrentHashMap<>();

    void register(Map<String, Hand.Deed> deeds) {
        deeds.put("listen", this::start);
        deeds.put("stop-listening", this::stop);
        deeds.put("seen", command -> listener(command).seen(command));
        deeds.put("holds", this::holds);
        deeds.put("commit-offsets", this::commit);
    }

    static final class Listener {
        final DefaultMQPushConsumer consumer;
        final boolean brief;
        final Map<String, Object> fail;
        final String replier;
        final List<Object> seen = new ArrayList<>();
        final Map<String, Integer> failed = new HashMap<>();
        final long pause;
        final java.io.OutputStream journal;

        Listener(DefaultMQPushConsumer consumer, Command command) throws java.io.IOException {
            this.consumer = consumer;
            this.brief = command.flag("brief");
            this.fail = command.map("fail");
            this.replier = command.text("replier", null);
            this.pause = command.number("pause", 0);
            this.journal = command.has("journal") ? new java.io.FileOutputStream(command.text("journal")) : null;
        }

        /** Notes the messages and says whether they count as consumed. */
        boolean take(List<MessageExt> messages) {
            boolean good = true;
            synchronized (seen) {
                for (MessageExt message : messages) {
                    int wanted = ((Number) fail.getOrDefault(String.valueOf(message.getKeys()), 0)).intValue();
                    if (wanted != 0) {
                        int before = failed.merge(message.getKeys(), 1, Integer::sum);
                        good &= wanted > 0 && before > wanted;
                    }
                    String line = new String(message.getBody(), StandardCharsets.UTF_8) + "@" + message.getQueueId() + "@" + message.getQueueOffset();
                    note(line);
                    seen.add(brief ? line : record(message));
                }
                seen.notifyAll();
            }
            if (pause > 0) {
                try {
                    Thread.sleep(pause);
                } catch (InterruptedException e) {
                    Thread.currentThread().interrupt();
                }
            }
            if (replier != null) {
                messages.forEach(this::reply);
            }
            return good;
        }

        /** Leaves a line that outlives this process: written to the system before the message counts as consumed. */
        void note(String line) {
            try {
                if (journal != null) {
                    journal.write((line + "@" + System.currentTimeMillis() + "\n").getBytes(StandardCharsets.UTF_8));
                }
            } catch (java.io.IOException problem) {
                throw new java.io.UncheckedIOException(problem);
            }
        }

        void reply(MessageExt message) {
            try {
                byte[] answer = ("answer to " + new String(message.getBody(), StandardCharsets.UTF_8)).getBytes(StandardCharsets.UTF_8);
                Sending.PRODUCERS.get(replier).send(MessageUtil.createReplyMessage(message, answer), 3000);
            } catch (Exception problem) {
                problem.printStackTrace();
            }
        }

        /** Waits until at least so many were seen, then gives those from a place on. */
        Object seen(Command command) throws InterruptedException {
            long atLeast = command.number("atLeast", 0);
            long end = System.currentTimeMillis() + command.number("timeout", 30000);
            synchronized (seen) {
                while (seen.size() < atLeast && System.currentTimeMillis() < end) {
                    seen.wait(Math.max(1, end - System.currentTimeMillis()));
                }
                return new ArrayList<>(seen.subList(Math.min(seen.size(), (int) command.number("from", 0)), seen.size()));
            }
        }
    }

    static Map<String, Object> record(MessageExt message) {
        Map<String, Object> record = new LinkedHashMap<>();
        record.put("topic", message.getTopic());
        record.put("key", message.getKeys());
        record.put("tag", message.getTags());
        record.put("body", body(message.getBody()));
        record.put("broker", message.getBrokerName());
        record.put("queue", message.getQueueId());
        record.put("offset", message.getQueueOffset());
        record.put("msgId", message.getMsgId());
        record.put("offsetMsgId", message instanceof MessageClientExt ? ((MessageClientExt) message).getOffsetMsgId() : message.getMsgId());
        record.put("times", message.getReconsumeTimes());
        record.put("flag", message.getFlag());
        record.put("born", message.getBornTimestamp());
        record.put("stored", message.getStoreTimestamp());
        record.put("at", System.currentTimeMillis());
        record.put("props", new HashMap<>(message.getProperties()));
        return record;
    }

    static String body(byte[] body) {
        if (body == null) {
            return "";
        }
        if (body.length <= 300) {
            return new String(body, StandardCharsets.UTF_8);
        }
        try {
            StringBuilder hex = new StringBuilder("sha256:");
            for (byte one : MessageDigest.getInstance("SHA-256").digest(body)) {
                hex.append(String.format("%02x", one));
            }
            return hex.append(':').append(body.length).toString();
        } catch (Exception e) {
            throw new IllegalStateException(e);
        }
    }

    static Listener listener(Command command) {
        Listener listener = LISTENERS.get(command.text("name"));
        if (listener == null) {
            throw new IllegalArgumentException("no consumer " + command.text("name"));
        }
        return listener;
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    static void broadcasting(DefaultMQPushConsumer consumer) throws Exception {
        for (var method : DefaultMQPushConsumer.class.getMethods()) { // the class of the model lives elsewhere in 4.9
            if (method.getName().equals("setMessageModel")) {
                method.invoke(consumer, Enum.valueOf((Class) method.getParameterTypes()[0], "BROADCASTING"));
            }
        }
    }

    Object start(Command command) throws Exception {
        DefaultMQPushConsumer consumer = Hand.configured(
            new DefaultMQPushConsumer(command.text("group"), Hand.hook(), new AllocateMessageQueueAveragely(), command.flag("trace"), null));
        consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf("CONSUME_FROM_" + command.text("consumeFrom", "FIRST_OFFSET")));
        if (command.has("timestamp")) {
            consumer.setConsumeTimestamp(command.text("timestamp"));
        }
        consumer.setConsumeThreadMin(4);
        consumer.setConsumeThreadMax(4);
        consumer.setConsumeMessageBatchMaxSize((int) command.number("batch", 1));
        consumer.setPersistConsumerOffsetInterval((int) command.number("persist", 1000));
        consumer.setMaxReconsumeTimes((int) command.number("maxReconsume", -1));
        consumer.setSuspendCurrentQueueTimeMillis(command.number("suspend", 100));
        if (command.flag("broadcasting")) {
            broadcasting(consumer);
        }
        if (command.flag("brokerRebalance")) { // asks the broker which queues it gets, and whether it pulls or pops
            DefaultMQPushConsumer.class.getMethod("setClientRebalance", boolean.class).invoke(consumer, false);
        }
        if (command.has("sql")) {
            consumer.subscribe(command.text("topic"), MessageSelector.bySql(command.text("sql")));
        } else {
            consumer.subscribe(command.text("topic"), command.text("tags", "*"));
        }
        Listener listener = new Listener(consumer, command);
        int level = (int) command.number("failDelay", 0);
        if (command.flag("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) ->
                listener.take(messages) ? ConsumeOrderlyStatus.SUCCESS : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                context.setDelayLevelWhenNextConsume(level);
                return listener.take(messages) ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER;
            });
        }
        consumer.start();
        LISTENERS.put(command.text("name"), listener);
        return consumer.buildMQClientId();
    }

    Object stop(Command command) {
        Listener listener = listener(command);
        LISTENERS.remove(command.text("name"));
        listener.consumer.shutdown();
        return new ArrayList<>(listener.seen);
    }

    /** The queues of a topic that a consumer holds now; waits until it is so many, when told a number. */
    Object holds(Command command) throws InterruptedException {
        Listener listener = listener(command);
        String topic = command.text("topic");
        long wanted = command.number("count", -1);
        Hand.await(() -> wanted < 0 || held(listener, topic).size() == wanted, command.number("timeout", 30000));
        return new ArrayList<>(held(listener, topic));
    }

    static TreeSet<String> held(Listener listener, String topic) {
        TreeSet<String> queues = new TreeSet<>();
        for (MessageQueue queue : listener.consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet()) {
            if (queue.getTopic().equals(topic)) {
                queues.add(queue.getBrokerName() + ":" + queue.getQueueId());
            }
        }
        return queues;
    }

    Object commit(Command command) {
        listener(command).consumer.getDefaultMQPushConsumerImpl().persistConsumerOffset();
        return true;
    }
}
