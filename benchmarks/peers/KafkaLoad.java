import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.LongAdder;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * `one|batch ADDRESS TOPIC SIZE WARM_S WINDOW_S` sends for so long, `read ADDRESS TOPIC SKIP COUNT` reads so many.
 * Says "begin" when it is warm, and "end MESSAGES SECONDS" when the window is over.
 */
public class KafkaLoad {
    static final int SENDERS = 16;
    static final LongAdder acknowledged = new LongAdder();
    static final AtomicBoolean over = new AtomicBoolean();

    public static void main(String[] words) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", words[1]);
        if (words[0].equals("read")) {
            read(settings, words[2], Long.parseLong(words[3]), Long.parseLong(words[4]));
        } else {
            send(settings, words[0].equals("one"), words[2], new byte[Integer.parseInt(words[3])], words);
        }
    }

    static void send(Properties settings, boolean one, String topic, byte[] body, String[] words) throws Exception {
        settings.put("acks", "1");
        settings.put("linger.ms", one ? "0" : "5");
        settings.put("batch.size", one ? "16384" : "65536");
        settings.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings);
        for (int sender = 0; sender < (one ? SENDERS : 1); sender++) {
            new Thread(() -> {
                try {
                    while (!over.get()) {
                        if (one) {
                            producer.send(new ProducerRecord<>(topic, body)).get();
                            acknowledged.increment();
                        } else {
                            producer.send(new ProducerRecord<>(topic, body), (place, problem) -> {
                                if (problem == null) acknowledged.increment();
                            });
                        }
                    }
                } catch (Exception problem) {
                    problem.printStackTrace();
                    System.exit(1);
                }
            }).start();
        }
        Thread.sleep((long) (Double.parseDouble(words[4]) * 1000));
        long before = acknowledged.sum(), begin = begin();
        Thread.sleep((long) (Double.parseDouble(words[5]) * 1000));
        end(acknowledged.sum() - before, begin);
        over.set(true);
        producer.close();
    }

    static void read(Properties settings, String topic, long skip, long count) {
        settings.put("group.id", "readers");
        settings.put("auto.offset.reset", "earliest");
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(List.of(topic));
            long seen = 0, warm = 0, begin = 0;
            while (seen < count) {
                seen += consumer.poll(Duration.ofSeconds(1)).count();
                if (begin == 0 && seen >= skip) {
                    warm = seen;
                    begin = begin();
                }
            }
            end(seen - warm, begin);
        }
    }

    static long begin() {
        System.out.println("begin");
        System.out.flush();
        return System.nanoTime();
    }

    static void end(long messages, long begin) {
        System.out.printf("end %d %.6f%n", messages, (System.nanoTime() - begin) / 1e9);
        System.out.flush();
    }
}
