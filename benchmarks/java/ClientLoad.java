import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/** The Java client at the loads of client.py: namesrv, topic, load, messages, body bytes, messages to warm up with. */
public class ClientLoad {
    static OperatingSystemMXBean system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    interface Work {
        void run(int messages) throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        String namesrv = arguments[0], topic = arguments[1], load = arguments[2];
        int messages = Integer.parseInt(arguments[3]), size = Integer.parseInt(arguments[4]);
        int warmUp = Integer.parseInt(arguments[5]);
        if (load.equals("consume")) {
            consume(namesrv, topic, messages);
            return;
        }
        DefaultMQProducer producer = new DefaultMQProducer("client_load");
        producer.setNamesrvAddr(namesrv);
        producer.setSendMsgTimeout(60000);
        producer.setMqClientApiTimeout(30000);
        producer.setAutoBatch(load.equals("auto"));
        producer.start();
        byte[] body = new byte[size];
        Work work = switch (load) {
            case "one" -> count -> sends(producer, topic, body, count, 1);
            case "16" -> count -> sends(producer, topic, body, count, 16);
            case "256", "auto" -> count -> asynchronous(producer, topic, body, count, 256);
            default -> count -> batches(producer, topic, body, count);
        };
        work.run(warmUp);
        measure(messages, () -> work.run(messages));
        producer.shutdown();
        System.exit(0);
    }

    interface Step {
        void run() throws Exception;
    }

    static void measure(int messages, Step step) throws Exception {
        long cpu = system.getProcessCpuTime(), started = System.nanoTime();
        step.run();
        print(messages, started, cpu);
    }

    static void print(int messages, long started, long cpu) {
        double seconds = (System.nanoTime() - started) / 1e9, used = (system.getProcessCpuTime() - cpu) / 1e9;
        System.out.printf("{\"messages\": %d, \"seconds\": %f, \"cpu_s\": %f}%n", messages, seconds, used);
    }

    static void sends(DefaultMQProducer producer, String topic, byte[] body, int count, int threads) throws Exception {
        List<Thread> all = new ArrayList<>();
        for (int number = 0; number < threads; number++) {
            all.add(new Thread(() -> {
                try {
                    for (int sent = 0; sent < count / threads; sent++) {
                        producer.send(new Message(topic, body));
                    }
                } catch (Exception problem) {
                    problem.printStackTrace();
                    System.exit(1);
                }
            }));
        }
        for (Thread thread : all) {
            thread.start();
        }
        for (Thread thread : all) {
            thread.join();
        }
    }

    static void asynchronous(DefaultMQProducer producer, String topic, byte[] body, int count, int inFlight)
            throws Exception {
        Semaphore room = new Semaphore(inFlight);
        CountDownLatch done = new CountDownLatch(count);
        SendCallback[] callback = new SendCallback[1];
        callback[0] = new SendCallback() {
            public void onSuccess(SendResult result) {
                room.release();
                done.countDown();
            }

            /** A broker under load refuses; the client does not repeat asynchronous sends by itself. */
            public void onException(Throwable refused) {
                try {
                    producer.send(new Message(topic, body), callback[0]);
                } catch (Exception problem) {
                    problem.printStackTrace();
                    System.exit(1);
                }
            }
        };
        for (int sent = 0; sent < count; sent++) {
            room.acquire();
            producer.send(new Message(topic, body), callback[0]);
        }
        done.await();
    }

    static void batches(DefaultMQProducer producer, String topic, byte[] body, int count) throws Exception {
        for (int sent = 0; sent < count; sent += 32) {
            List<Message> batch = new ArrayList<>(32);
            for (int number = 0; number < 32; number++) {
                batch.add(new Message(topic, body));
            }
            producer.send(batch);
        }
    }

    static void consume(String namesrv, String topic, int messages) throws Exception {
        AtomicInteger seen = new AtomicInteger();
        int warmUp = messages / 5;
        long[] begin = new long[2];
        CountDownLatch done = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("client_load_" + System.nanoTime());
        consumer.setNamesrvAddr(namesrv);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPullBatchSize(32);
        consumer.setMqClientApiTimeout(30000);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (batch, context) -> {
            int now = seen.addAndGet(batch.size());
            if (now == warmUp) {
                begin[1] = system.getProcessCpuTime();
                begin[0] = System.nanoTime();
            }
            if (now == messages) {
                done.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        done.await();
        print(messages - warmUp, begin[0], begin[1]);
        System.exit(0);
    }
}
