import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/** `one|batch|read ADDRESS TOPIC COUNT SIZE`: prints how many messages went and how many seconds that took. */
public class KafkaLoad {
    static final int SENDERS = 16;

    public static void main(String[] words) throws Exception {
        String mode = words[0];
        String topic = words[2];
        long count = Long.parseLong(words[3]);
        byte[] body = new byte[Integer.parseInt(words[4])];
        Properties settings = new Properties();
        settings.put("bootstrap.servers", words[1]);
        long begin = System.nanoTime();
        long done = switch (mode) {
            case "one" -> oneAtATime(settings, topic, count, body);
            case "batch" -> batched(settings, topic, count, body);
            default -> read(settings, topic, count);
        };
        System.out.printf("%d %.6f%n", done, (System.nanoTime() - begin) / 1e9);
    }

    static KafkaProducer<byte[], byte[]> producer(Properties settings) {
        settings.put("acks", "1");
        settings.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        return new KafkaProducer<>(settings);
    }

    static long oneAtATime(Properties settings, String topic, long count, byte[] body) throws Exception {
        settings.put("linger.ms", "0");
        AtomicLong left = new AtomicLong(count);
        CountDownLatch finished = new CountDownLatch(SENDERS);
        try (KafkaProducer<byte[], byte[]> producer = producer(settings)) {
            for (int sender = 0; sender < SENDERS; sender++) {
                new Thread(() -> {
                    try {
                        while (left.getAndDecrement() > 0) {
                            producer.send(new ProducerRecord<>(topic, body)).get();
                        }
                    } catch (Exception problem) {
                        throw new IllegalStateException(problem);
                    } finally {
                        finished.countDown();
                    }
                }).start();
            }
            finished.await();
        }
        return count;
    }

    static long batched(Properties settings, String topic, long count, byte[] body) {
        settings.put("linger.ms", "5");
        settings.put("batch.size", "65536");
        try (KafkaProducer<byte[], byte[]> producer = producer(settings)) {
            for (long sent = 0; sent < count; sent++) {
                producer.send(new ProducerRecord<>(topic, body));
            }
            producer.flush();
        }
        return count;
    }

    static long read(Properties settings, String topic, long count) {
        settings.put("group.id", "readers");
        settings.put("auto.offset.reset", "earliest");
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        long seen = 0;
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(List.of(topic));
            while (seen < count) {
                seen += consumer.poll(Duration.ofSeconds(1)).count();
            }
        }
        return seen;
    }
}
