import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** What operators ask: topics, queries, offsets, resets, and the calls from the broker to a consumer. */
final class Asking {
    private static DefaultMQAdminExt admin;

    void register(Map<String, Hand.Deed> deeds) {
        deeds.put("create-topic", this::createTopic);
        deeds.put("await-route", command -> awaitRoute(command.text("topic"), (int) command.number("brokers", 1)));
        deeds.put("query", command -> Pulling.records(admin().queryMessage(command.text("topic"), command.text("key"),
            (int) command.number("most", 64), command.number("begin", 0), command.number("end", Long.MAX_VALUE)).getMessageList()));
        deeds.put("view", command -> Listening.record(admin().viewMessage(command.text("topic"), command.text("msgId"))));
        deeds.put("offsets", this::offsets);
        deeds.put("progress", this::progress);
        deeds.put("reset", this::reset);
        deeds.put("running", this::running);
        deeds.put("consumer-status", this::status);
        deeds.put("directly", command -> admin().consumeMessageDirectly(command.text("group"), command.text("clientId"),
            command.text("topic"), command.text("msgId")).getConsumeResult().name());
    }

    DefaultMQAdminExt admin() throws MQClientException {
        return shared();
    }

    static synchronized DefaultMQAdminExt shared() throws MQClientException {
        if (admin == null) {
            DefaultMQAdminExt fresh = Hand.configured(new DefaultMQAdminExt(Hand.hook()));
            fresh.start();
            admin = fresh;
        }
        return admin;
    }

    /** Returns when the NameServer knows the topic on every given broker. */
    Object createTopic(Command command) throws Exception {
        int queues = (int) command.number("queues", 4);
        String topic = command.text("topic");
        String[] addresses = command.text("brokers", Hand.broker).split(",");
        for (String address : addresses) {
            admin().createAndUpdateTopicConfig(address, new TopicConfig(topic, queues, queues, (int) command.number("perm", 6)));
        }
        return awaitRoute(topic, addresses.length);
    }

    Object awaitRoute(String topic, int brokers) throws InterruptedException {
        boolean known = Hand.await(() -> {
            try {
                return admin().examineTopicRouteInfo(topic).getQueueDatas().size() == brokers;
            } catch (Exception notYet) {
                return false;
            }
        }, 40000);
        if (!known) {
            throw new IllegalStateException("the NameServer has no route of " + topic);
        }
        return true;
    }

    Object offsets(Command command) throws Exception {
        MessageQueue queue = Pulling.queue(command);
        Map<String, Object> said = new LinkedHashMap<>();
        said.put("min", admin().minOffset(queue));
        said.put("max", admin().maxOffset(queue));
        if (command.has("time")) {
            said.put("at", admin().searchOffset(queue, command.number("time", 0)));
        }
        said.put("earliest", admin().earliestMsgStoreTime(queue));
        return said;
    }

    /** Of every queue of a group: the broker's end and the group's place. */
    Object progress(Command command) throws Exception {
        Map<String, Object> said = new TreeMap<>();
        var stats = command.has("topic") ? admin().examineConsumeStats(command.text("group"), command.text("topic"))
            : admin().examineConsumeStats(command.text("group"));
        stats.getOffsetTable().forEach((queue, offsets) -> {
            Map<String, Object> both = new LinkedHashMap<>();
            both.put("broker", offsets.getBrokerOffset());
            both.put("consumer", offsets.getConsumerOffset());
            said.put(queue.getTopic() + "@" + queue.getBrokerName() + ":" + queue.getQueueId(), both);
        });
        return said;
    }

    Object reset(Command command) throws Exception {
        Map<String, Object> said = new TreeMap<>();
        admin().resetOffsetByTimestamp(command.text("topic"), command.text("group"), command.number("time", 0), command.flag("force"))
            .forEach((queue, offset) -> said.put(String.valueOf(queue.getQueueId()), offset));
        return said;
    }

    Object running(Command command) throws Exception {
        var info = admin().getConsumerRunningInfo(command.text("group"), command.text("clientId"), command.flag("stack"));
        Map<String, Object> said = new LinkedHashMap<>();
        said.put("subscriptions", info.getSubscriptionSet().size());
        said.put("queues", info.getMqTable().size());
        said.put("consumeType", String.valueOf(info.getProperties().get("PROP_CONSUME_TYPE")));
        said.put("clientVersion", String.valueOf(info.getProperties().get("PROP_CLIENT_VERSION")));
        said.put("stack", info.getJstack() != null);
        return said;
    }

    Object status(Command command) throws Exception {
        Map<String, Object> said = new TreeMap<>();
        admin().getConsumeStatus(command.text("topic"), command.text("group"), command.text("clientId", "")).forEach((client, table) -> {
            Map<String, Object> queues = new TreeMap<>();
            table.forEach((queue, offset) -> queues.put(String.valueOf(queue.getQueueId()), offset));
            said.put(client, queues);
        });
        return said;
    }
}
