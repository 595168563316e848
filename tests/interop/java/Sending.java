import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Producers: every way to send, transactions, requests. */
final class Sending {
    static final Map<String, DefaultMQProducer> PRODUCERS = new ConcurrentHashMap<>();
    static final Map<String, List<String>> CHECKED = new ConcurrentHashMap<>();

    void register(Map<String, Hand.Deed> deeds) {
        deeds.put("producer", this::start);
        deeds.put("stop-producer", this::stop);
        deeds.put("send", this::send);
        deeds.put("flood", this::flood);
        deeds.put("pulse", this::pulse);
        deeds.put("pulse-last", this::lastOfPulse);
        deeds.put("stop-pulse", this::stopPulse);
        deeds.put("transact", this::transact);
        deeds.put("checked", command -> new ArrayList<>(CHECKED.get(command.text("producer"))));
        deeds.put("request", this::request);
    }

    Object start(Command command) throws Exception {
        String group = command.text("group");
        DefaultMQProducer producer = command.flag("transactional") ? new TransactionMQProducer(group, Hand.hook())
            : command.flag("trace") ? new DefaultMQProducer(group, Hand.hook(), true, null) : new DefaultMQProducer(group, Hand.hook());
        Hand.configured(producer);
        if (command.has("poll")) {
            producer.setPollNameServerInterval((int) command.number("poll", 1000));
        }
        producer.setSendMsgTimeout((int) command.number("timeout", 10000));
        producer.setRetryTimesWhenSendFailed((int) command.number("retries", 2));
        producer.setCompressMsgBodyOverHowmuch((int) command.number("compressOver", 4096));
        producer.setMaxMessageSize((int) command.number("maxMessageSize", 1 << 22));
        producer.setSendMessageWithVIPChannel(command.flag("vip"));
        if (command.has("compress")) { // a choice that the 4.9 client does not have
            Class<?> type = Class.forName("org.apache.rocketmq.common.compression.CompressionType");
            Object chosen = type.getMethod("valueOf", String.class).invoke(null, command.text("compress"));
            DefaultMQProducer.class.getMethod("setCompressType", type).invoke(producer, chosen);
        }
        if (command.flag("transactional")) {
            List<String> checked = new java.util.concurrent.CopyOnWriteArrayList<>();
            CHECKED.put(command.text("name"), checked);
            ((TransactionMQProducer) producer).setTransactionListener(new Fates(checked));
        }
        producer.start();
        PRODUCERS.put(command.text("name"), producer);
        return producer.buildMQClientId();
    }

    Object stop(Command command) {
        PRODUCERS.remove(command.text("name")).shutdown();
        return true;
    }

    static DefaultMQProducer producer(Command command) {
        DefaultMQProducer producer = PRODUCERS.get(command.text("producer"));
        if (producer == null) {
            throw new IllegalArgumentException("no producer " + command.text("producer"));
        }
        return producer;
    }

    static Message message(String topic, Command given) {
        byte[] body = given.has("size") ? noise((int) given.number("size", 0), given.number("seed", 1))
            : given.has("repeat") ? given.text("body").repeat((int) given.number("repeat", 1)).getBytes(StandardCharsets.UTF_8)
            : given.text("body", "").getBytes(StandardCharsets.UTF_8);
        Message message = new Message(given.text("topic", topic), given.text("tag", null), given.text("key", null), body);
        given.map("props").forEach((name, value) -> message.putUserProperty(name, value.toString()));
        message.setFlag((int) given.number("flag", 0));
        if (given.has("delay")) {
            message.setDelayTimeLevel((int) given.number("delay", 0));
        }
        if (given.has("wait")) {
            message.setWaitStoreMsgOK(given.flag("wait"));
        }
        return message;
    }

    static byte[] noise(int size, long seed) {
        byte[] bytes = new byte[size];
        new Random(seed).nextBytes(bytes);
        return bytes;
    }

    static Map<String, Object> receipt(SendResult result) {
        Map<String, Object> receipt = new LinkedHashMap<>();
        receipt.put("status", result.getSendStatus().name());
        receipt.put("msgId", result.getMsgId());
        receipt.put("offsetMsgId", result.getOffsetMsgId());
        receipt.put("broker", result.getMessageQueue().getBrokerName());
        receipt.put("queue", result.getMessageQueue().getQueueId());
        receipt.put("offset", result.getQueueOffset());
        receipt.put("transactionId", result.getTransactionId());
        return receipt;
    }

    /** Sends messages one by one in the given way; the receipts come in the same order. */
    Object send(Command command) throws Exception {
        DefaultMQProducer producer = producer(command);
        String how = command.text("how", "sync");
        String topic = command.text("topic", "");
        List<Message> messages = new ArrayList<>();
        List<Command> given = new ArrayList<>();
        for (Object one : command.list("messages")) {
            given.add(new Command(one));
            messages.add(message(topic, new Command(one)));
        }
        if (how.equals("batch")) {
            return receipt(producer.send(messages));
        }
        Object[] receipts = new Object[messages.size()];
        CountDownLatch left = new CountDownLatch(how.equals("async") ? messages.size() : 0);
        for (int i = 0; i < receipts.length; i++) {
            int place = i;
            Message message = messages.get(i);
            MessageQueue queue = given.get(i).has("queue")
                ? new MessageQueue(message.getTopic(), given.get(i).text("broker", "broker-a"), (int) given.get(i).number("queue", 0)) : null;
            try {
                if (how.equals("oneway")) {
                    producer.sendOneway(message);
                } else if (how.equals("async")) {
                    producer.send(message, callback(receipts, place, left));
                } else {
                    receipts[i] = receipt(queue == null ? producer.send(message) : producer.send(message, queue));
                }
            } catch (Exception refused) {
                receipts[i] = Hand.problem(refused);
            }
        }
        left.await(command.number("timeout", 60000), TimeUnit.MILLISECONDS);
        return receipts;
    }

    static SendCallback callback(Object[] receipts, int place, CountDownLatch left) {
        return new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                receipts[place] = receipt(result);
                left.countDown();
            }

            @Override
            public void onException(Throwable problem) {
                receipts[place] = Hand.problem(problem);
                left.countDown();
            }
        };
    }

    /**
     * Sends "KEY:NUMBER" for each of `keys` keys up to `count` numbers, each key to one queue, each key in order, with
     * `threads` threads. A failed send is tried again until it succeeds, so every number arrives at least once.
     */
    Object flood(Command command) throws Exception {
        DefaultMQProducer producer = producer(command);
        int keys = (int) command.number("keys", 8);
        int count = (int) command.number("count", 1000);
        int threads = (int) command.number("threads", 4);
        String topic = command.text("topic");
        String prefix = command.text("prefix", "k");
        AtomicInteger failures = new AtomicInteger();
        AtomicInteger sent = new AtomicInteger();
        List<Thread> running = new ArrayList<>();
        for (int t = 0; t < threads; t++) {
            int first = t;
            Thread thread = new Thread(() -> {
                for (int number = 0; number < count; number++) {
                    for (int key = first; key < keys; key += threads) {
                        Message message = new Message(topic, "T", prefix + key, (prefix + key + ":" + number).getBytes(StandardCharsets.UTF_8));
                        while (true) {
                            try {
                                producer.send(message, (queues, m, k) -> queues.get((Integer) k % queues.size()), key, 5000);
                                sent.incrementAndGet();
                                break;
                            } catch (Exception refused) {
                                failures.incrementAndGet();
                                try {
                                    Thread.sleep(50);
                                } catch (InterruptedException e) {
                                    return;
                                }
                            }
                        }
                    }
                }
            });
            thread.start();
            running.add(thread);
        }
        for (Thread thread : running) {
            thread.join();
        }
        Map<String, Object> result = new LinkedHashMap<>();
        result.put("sent", sent.get());
        result.put("failures", failures.get());
        return result;
    }

    /** A stream of sends that goes on until it is stopped. */
    static final class Pulse {
        volatile boolean isStopped;
        final List<Thread> threads = new ArrayList<>();
        final List<String> acknowledged = java.util.Collections.synchronizedList(new ArrayList<>());
        final AtomicInteger failures = new AtomicInteger();
    }

    private static final Map<String, Pulse> PULSES = new java.util.concurrent.ConcurrentHashMap<>();

    /**
     * Sends "KEY:NUMBER" for each of `keys` keys, a thread each, one after the other, to the key's queue, until it is
     * stopped. A number is repeated until it was acknowledged (SEND_OK), then noted as
     * KEY:NUMBER@BEGUN@ACKNOWLEDGED@OFFSET: its first try and its acknowledgement in milliseconds, its place in the queue.
     */
    Object pulse(Command command) {
        DefaultMQProducer producer = producer(command);
        Pulse pulse = new Pulse();
        String topic = command.text("topic");
        String prefix = command.text("prefix", "k");
        long pause = command.number("pause", 2);
        long timeout = command.number("timeout", 1000);
        for (int k = 0; k < (int) command.number("keys", 4); k++) {
            int key = k;
            Thread thread = new Thread(() -> {
                for (int number = 0; !pulse.isStopped; number++) {
                    String name = prefix + key + ":" + number;
                    Message message = new Message(topic, "T", prefix + key, name.getBytes(StandardCharsets.UTF_8));
                    long begun = System.currentTimeMillis();
                    while (!pulse.isStopped) {
                        try {
                            SendResult result = producer.send(message, (queues, m, i) -> queues.get((Integer) i % queues.size()), key, timeout);
                            if (result.getSendStatus() == org.apache.rocketmq.client.producer.SendStatus.SEND_OK) {
                                pulse.acknowledged.add(name + "@" + begun + "@" + System.currentTimeMillis() + "@" + result.getQueueOffset());
                                break;
                            }
                        } catch (Exception refused) {
                            pulse.failures.incrementAndGet();
                        }
                        java.util.concurrent.locks.LockSupport.parkNanos(5_000_000);
                    }
                    java.util.concurrent.locks.LockSupport.parkNanos(pause * 1_000_000);
                }
            });
            thread.start();
            pulse.threads.add(thread);
        }
        PULSES.put(command.text("name"), pulse);
        return true;
    }

    /** What a pulse noted last, and how many of its sends failed so far. */
    Object lastOfPulse(Command command) {
        Pulse pulse = PULSES.get(command.text("name"));
        Map<String, Object> result = new LinkedHashMap<>();
        synchronized (pulse.acknowledged) {
            int count = pulse.acknowledged.size();
            result.put("last", count == 0 ? "" : pulse.acknowledged.get(count - 1));
        }
        result.put("failures", pulse.failures.get());
        return result;
    }

    Object stopPulse(Command command) throws Exception {
        Pulse pulse = PULSES.remove(command.text("name"));
        pulse.isStopped = true;
        for (Thread thread : pulse.threads) {
            thread.join();
        }
        Map<String, Object> result = new LinkedHashMap<>();
        result.put("acknowledged", new ArrayList<>(pulse.acknowledged));
        result.put("failures", pulse.failures.get());
        return result;
    }

    /** The property "fate" says how the local transaction ends, "check" what a later check finds. */
    static final class Fates implements TransactionListener {
        private final List<String> checked;

        Fates(List<String> checked) {
            this.checked = checked;
        }

        static LocalTransactionState state(String name) {
            return "commit".equals(name) ? LocalTransactionState.COMMIT_MESSAGE
                : "rollback".equals(name) ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.UNKNOW;
        }

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return state(message.getUserProperty("fate"));
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            checked.add(message.getKeys());
            return state(message.getUserProperty("check"));
        }
    }

    Object transact(Command command) throws Exception {
        TransactionMQProducer producer = (TransactionMQProducer) producer(command);
        List<Object> receipts = new ArrayList<>();
        for (Object one : command.list("messages")) {
            try {
                receipts.add(receipt(producer.sendMessageInTransaction(message(command.text("topic"), new Command(one)), null)));
            } catch (Exception refused) {
                receipts.add(Hand.problem(refused));
            }
        }
        return receipts;
    }

    Object request(Command command) throws Exception {
        Message answer = producer(command).request(message(command.text("topic"), command), command.number("timeout", 10000));
        return new String(answer.getBody(), StandardCharsets.UTF_8);
    }
}
