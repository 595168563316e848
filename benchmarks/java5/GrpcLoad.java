import java.time.Duration;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;

/**
 * The load of RocketMQ's own Java client of the 5.x line: `GrpcLoad ADDRESS send|receive WARM_SECONDS SECONDS THREADS`.
 * A send is one message of 1 KiB, waited for; a receive asks for 32 messages and acknowledges each. It prints one line of
 * JSON: all messages, also those of the warm-up, and the rate after it.
 */
public final class GrpcLoad {
    static final String TOPIC = "bench";
    static final String GROUP = "bench-group-java";
    static final AtomicLong ALL = new AtomicLong();
    static final AtomicLong MEASURED = new AtomicLong();
    static final ConcurrentLinkedQueue<String> FAILURES = new ConcurrentLinkedQueue<>();
    static volatile boolean isMeasuring;
    static volatile boolean isOver;

    interface Step {
        int run() throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        ClientServiceProvider provider = ClientServiceProvider.loadService();
        ClientConfiguration configuration = ClientConfiguration.newBuilder()
            .setEndpoints(arguments[0]).enableSsl(false).setRequestTimeout(Duration.ofSeconds(10)).build();
        long warm = (long) (Double.parseDouble(arguments[2]) * 1000);
        long measured = (long) (Double.parseDouble(arguments[3]) * 1000);
        int threads = Integer.parseInt(arguments[4]);
        Step step;
        if (arguments[1].equals("send")) {
            Producer producer = provider.newProducerBuilder()
                .setClientConfiguration(configuration).setTopics(TOPIC).build();
            byte[] body = new byte[1024];
            Arrays.fill(body, (byte) 'x');
            step = () -> {
                producer.send(provider.newMessageBuilder().setTopic(TOPIC).setBody(body).build());
                return 1;
            };
        } else {
            SimpleConsumer consumer = provider.newSimpleConsumerBuilder()
                .setClientConfiguration(configuration).setConsumerGroup(GROUP).setAwaitDuration(Duration.ofSeconds(5))
                .setSubscriptionExpressions(Collections.singletonMap(TOPIC, FilterExpression.SUB_ALL)).build();
            step = () -> {
                List<MessageView> found = consumer.receive(32, Duration.ofMinutes(10));
                for (MessageView each : found) {
                    consumer.ack(each);
                }
                return found.size();
            };
        }
        CountDownLatch ended = new CountDownLatch(threads);
        for (int number = 0; number < threads; number++) {
            Thread thread = new Thread(() -> work(step, ended));
            thread.setDaemon(true);
            thread.start();
        }
        Thread.sleep(warm);
        isMeasuring = true;
        long began = System.nanoTime();
        Thread.sleep(measured);
        isMeasuring = false;
        double seconds = (System.nanoTime() - began) / 1e9;
        long counted = MEASURED.get();
        isOver = true;
        String failures = FAILURES.isEmpty() ? "" : FAILURES.peek().replaceAll("[\"\\\\\\p{Cntrl}]", " ");
        System.out.printf(
            "{\"messages\":%d,\"rate\":%.1f,\"failed\":%d,\"failure\":\"%s\"}%n",
            ALL.get(), counted / seconds, FAILURES.size(), failures);
        System.out.flush();
        System.exit(0);
    }

    static void work(Step step, CountDownLatch ended) {
        while (!isOver) {
            try {
                int done = step.run();
                ALL.addAndGet(done);
                if (isMeasuring) {
                    MEASURED.addAndGet(done);
                }
            } catch (Exception failure) {
                FAILURES.add(failure.toString());
            }
        }
        ended.countDown();
    }
}
