import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;

import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/**
 * Apache's benchmark Producer with a rate: so many threads send one message after the other, each at its own times, which
 * lie evenly between those of the others. -n NameServers, -t topic, -w threads, -s bytes, -r messages a second of all.
 */
public final class PacedProducer {
    public static void main(String[] arguments) throws MQClientException {
        Map<String, String> options = new HashMap<>();
        for (int place = 0; place + 1 < arguments.length; place += 2) {
            options.put(arguments[place], arguments[place + 1]);
        }
        int threads = Integer.parseInt(options.get("-w"));
        long interval = (long) (threads * 1e9 / Double.parseDouble(options.get("-r")));
        byte[] body = new byte[Integer.parseInt(options.get("-s"))];
        DefaultMQProducer producer = new DefaultMQProducer("paced_producer");
        producer.setNamesrvAddr(options.get("-n"));
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        producer.start();
        long begin = System.nanoTime();
        for (int number = 0; number < threads; number++) {
            long first = begin + number * interval / threads;
            new Thread(() -> send(producer, options.get("-t"), body, first, interval)).start();
        }
    }

    private static void send(DefaultMQProducer producer, String topic, byte[] body, long first, long interval) {
        for (long due = first; ; due += interval) {
            long now = System.nanoTime();
            if (now - due > 1_000_000_000L) {
                due = now; // who is a second late does not catch up with it
            }
            while (now < due) {
                LockSupport.parkNanos(due - now);
                now = System.nanoTime();
            }
            try {
                producer.send(new Message(topic, body));
            } catch (Exception problem) {
                System.out.println(problem);
            }
        }
    }
}
