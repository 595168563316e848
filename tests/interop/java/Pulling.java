import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Consumers that ask: the old pull consumer and the lite one. */
final class Pulling {
    static final Map<String, DefaultMQPullConsumer> PULLERS = new ConcurrentHashMap<>();
    static final Map<String, DefaultLitePullConsumer> LITES = new ConcurrentHashMap<>();

    void register(Map<String, Hand.Deed> deeds) {
        deeds.put("puller", this::start);
        deeds.put("pull", this::pull);
        deeds.put("commit", this::commit);
        deeds.put("committed", this::committed);
        deeds.put("stop-puller", this::stop);
        deeds.put("lite", this::lite);
        deeds.put("poll", this::poll);
        deeds.put("seek", this::seek);
        deeds.put("lite-commit", this::liteCommit);
        deeds.put("stop-lite", this::stopLite);
    }

    static MessageQueue queue(Command command) {
        return new MessageQueue(command.text("topic"), command.text("broker", "broker-a"), (int) command.number("queue", 0));
    }

    static List<Object> records(List<MessageExt> messages) {
        List<Object> records = new ArrayList<>();
        if (messages != null) {
            messages.forEach(message -> records.add(Listening.record(message)));
        }
        return records;
    }

    Object start(Command command) throws Exception {
        DefaultMQPullConsumer puller = Hand.configured(new DefaultMQPullConsumer(command.text("group"), Hand.hook()));
        puller.start();
        PULLERS.put(command.text("name"), puller);
        return puller.buildMQClientId();
    }

    Object pull(Command command) throws Exception {
        DefaultMQPullConsumer puller = PULLERS.get(command.text("name"));
        MessageQueue queue = queue(command);
        String tags = command.text("tags", "*");
        long offset = command.number("offset", 0);
        int most = (int) command.number("most", 32);
        PullResult result = command.flag("block") ? puller.pullBlockIfNotFound(queue, tags, offset, most) : puller.pull(queue, tags, offset, most);
        Map<String, Object> said = new LinkedHashMap<>();
        said.put("status", result.getPullStatus().name());
        said.put("next", result.getNextBeginOffset());
        said.put("min", result.getMinOffset());
        said.put("max", result.getMaxOffset());
        said.put("messages", records(result.getMsgFoundList()));
        return said;
    }

    Object commit(Command command) throws Exception {
        DefaultMQPullConsumer puller = PULLERS.get(command.text("name"));
        puller.updateConsumeOffset(queue(command), command.number("offset", 0));
        puller.getDefaultMQPullConsumerImpl().getOffsetStore().persistAll(java.util.Collections.singleton(queue(command)));
        return true;
    }

    Object committed(Command command) throws Exception {
        return PULLERS.get(command.text("name")).fetchConsumeOffset(queue(command), true);
    }

    Object stop(Command command) {
        PULLERS.remove(command.text("name")).shutdown();
        return true;
    }

    Object lite(Command command) throws Exception {
        DefaultLitePullConsumer lite = Hand.configured(new DefaultLitePullConsumer(command.text("group"), Hand.hook()));
        lite.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        lite.setAutoCommit(command.flag("autoCommit"));
        if (command.flag("assign")) {
            lite.start();
            lite.assign(new ArrayList<>(lite.fetchMessageQueues(command.text("topic"))));
        } else {
            lite.subscribe(command.text("topic"), command.text("tags", "*"));
            lite.start();
        }
        LITES.put(command.text("name"), lite);
        return lite.buildMQClientId();
    }

    /** Polls until so many came or the time is over. */
    Object poll(Command command) {
        DefaultLitePullConsumer lite = LITES.get(command.text("name"));
        long end = System.currentTimeMillis() + command.number("timeout", 30000);
        List<MessageExt> found = new ArrayList<>();
        while (found.size() < command.number("atLeast", 1) && System.currentTimeMillis() < end) {
            found.addAll(lite.poll(200));
        }
        return records(found);
    }

    Object seek(Command command) throws Exception {
        DefaultLitePullConsumer lite = LITES.get(command.text("name"));
        for (MessageQueue queue : lite.fetchMessageQueues(command.text("topic"))) {
            if (command.has("time")) {
                lite.seek(queue, lite.offsetForTimestamp(queue, command.number("time", 0)));
            } else if (command.flag("end")) {
                lite.seekToEnd(queue);
            } else {
                lite.seekToBegin(queue);
            }
        }
        return true;
    }

    Object liteCommit(Command command) throws Exception {
        DefaultLitePullConsumer lite = LITES.get(command.text("name"));
        lite.commitSync();
        Map<String, Object> committed = new LinkedHashMap<>();
        for (MessageQueue queue : lite.fetchMessageQueues(command.text("topic"))) {
            committed.put(String.valueOf(queue.getQueueId()), lite.committed(queue));
        }
        return committed;
    }

    Object stopLite(Command command) {
        LITES.remove(command.text("name")).shutdown();
        return true;
    }
}
