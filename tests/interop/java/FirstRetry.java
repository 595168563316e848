import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLongArray;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/** New groups, each with a client of its own and all its defaults, that fail at one message once: see first_retry.py. */
public final class FirstRetry {
    public static void main(String[] arguments) throws Exception {
        String namesrv = arguments[0];
        int groups = Integer.parseInt(arguments[1]);
        long patience = Long.parseLong(arguments[2]);
        String topic = "FirstRetry";
        DefaultMQProducer producer = new DefaultMQProducer("first_retry_producer");
        producer.setNamesrvAddr(namesrv);
        producer.start();
        producer.send(new Message(topic, "x".getBytes()), 30000);
        producer.shutdown();
        AtomicLongArray failed = new AtomicLongArray(groups);
        AtomicLongArray came = new AtomicLongArray(groups);
        CountDownLatch left = new CountDownLatch(groups);
        for (int number = 0; number < groups; number++) {
            int group = number;
            DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("first_retry_" + number);
            consumer.setNamesrvAddr(namesrv);
            consumer.setInstanceName("first_retry_" + number);
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.setConsumeThreadMin(1);
            consumer.setConsumeThreadMax(1);
            consumer.subscribe(topic, "*");
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                if (messages.get(0).getReconsumeTimes() == 0) {
                    failed.compareAndSet(group, 0, System.currentTimeMillis());
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
                if (came.compareAndSet(group, 0, System.currentTimeMillis())) {
                    left.countDown();
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            consumer.start();
        }
        left.await(patience, TimeUnit.SECONDS);
        for (int number = 0; number < groups; number++) {
            System.out.println("delay " + (came.get(number) == 0 ? -1 : came.get(number) - failed.get(number)));
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
