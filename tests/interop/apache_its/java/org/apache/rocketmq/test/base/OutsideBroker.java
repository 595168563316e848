package org.apache.rocketmq.test.base;

import java.util.Properties;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.offset.ConsumerOffsetManager;
import org.apache.rocketmq.broker.pop.orderly.ConsumerOrderInfoManager;
import org.apache.rocketmq.broker.subscription.SubscriptionGroupManager;
import org.apache.rocketmq.broker.topic.TopicConfigManager;
import org.apache.rocketmq.broker.topic.TopicQueueMappingCleanService;
import org.apache.rocketmq.client.exception.OffsetNotFoundException;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.header.QueryConsumerOffsetRequestHeader;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.junit.AssumptionViolatedException;
import org.mockito.Mockito;
import org.mockito.invocation.InvocationOnMock;
import org.mockito.stubbing.Answer;

/**
 * A BrokerController that was never started: what tests ask of it is asked of the broker outside, over remoting.
 *
 * <p>What has no request ends the test with a violated assumption that names the method.
 */
final class OutsideBroker extends BrokerController {
    private static final long TIMEOUT_MS = 10_000;
    // Any change of this one makes a broker register with its NameServers at once; 6 is what it is anyway.
    private static final String REGISTERING_SETTING = "brokerPermission";

    private final int number;
    private final String address;
    private final String name;
    // What is changed while the broker is stopped: it starts with that.
    private final Properties forTheNextStart = new Properties();
    private volatile boolean isStopped;

    // Null while the constructor of the superclass runs, which asks for some of them.
    private final BrokerConfig brokerSettings;
    private final MessageStoreConfig storeSettings;
    private final MessageStore store;
    private final ConsumerOffsetManager offsets;
    private final TopicConfigManager topics;
    private final SubscriptionGroupManager groups;
    private final ConsumerOrderInfoManager orderInfo;
    private final TopicQueueMappingCleanService mappingCleaner;

    private OutsideBroker(int number, BrokerConfig config, NettyServerConfig network, MessageStoreConfig storeConfig) {
        super(config, network, new NettyClientConfig(), storeConfig);
        this.number = number;
        this.name = config.getBrokerName();
        this.address = OutsideCluster.HOST + ":" + network.getListenPort();
        this.brokerSettings = SentSettings.of(config, this::changed);
        this.storeSettings = SentSettings.of(storeConfig, this::changed);
        this.store = asking(DefaultMessageStore.class, this::askStore);
        this.offsets = asking(ConsumerOffsetManager.class, this::askOffsets);
        this.topics = asking(TopicConfigManager.class, this::askTopics);
        this.groups = asking(SubscriptionGroupManager.class, this::askGroups);
        this.orderInfo = asking(ConsumerOrderInfoManager.class, OutsideBroker::needsTheInside);
        this.mappingCleaner = asking(TopicQueueMappingCleanService.class, call -> null);
    }

    /** The handle of the broker with this number and name. */
    static OutsideBroker of(int number, String name, String namesrv, String storeFolder) {
        NettyServerConfig network = new NettyServerConfig();
        network.setListenPort(OutsideCluster.brokerPort(number));
        OutsideBroker broker = new OutsideBroker(number, identity(new BrokerConfig(), number, name, namesrv), network,
            inFolder(new MessageStoreConfig(), storeFolder));
        broker.getBrokerOuterAPI().updateNameServerAddressList(namesrv);
        broker.getBrokerOuterAPI().start();
        return broker;
    }

    private static BrokerConfig identity(BrokerConfig config, int number, String name, String namesrv) {
        config.setBrokerName(name);
        config.setBrokerIP1(OutsideCluster.HOST);
        config.setNamesrvAddr(namesrv);
        config.setListenPort(OutsideCluster.brokerPort(number));
        return config;
    }

    private static MessageStoreConfig inFolder(MessageStoreConfig config, String folder) {
        config.setStorePathRootDir(folder);
        config.setHaListenPort(0);
        return config;
    }

    private static <T> T asking(Class<T> type, Answer<Object> answer) {
        return Mockito.mock(type, Mockito.withSettings().stubOnly().defaultAnswer(call ->
            call.getMethod().getName().equals("toString") ? "outside " + type.getSimpleName() : answer.answer(call)));
    }

    private static Object needsTheInside(InvocationOnMock call) {
        String method = call.getMethod().getDeclaringClass().getSimpleName() + "." + call.getMethod().getName();
        throw new AssumptionViolatedException("needs the broker inside this JVM: " + method);
    }

    private Object askStore(InvocationOnMock call) throws Exception {
        switch (call.getMethod().getName()) {
            case "getMaxOffsetInQueue":
                return OutsideCluster.api().getMaxOffset(address, queue(call, 0), TIMEOUT_MS);
            case "getMinOffsetInQueue":
                return OutsideCluster.api().getMinOffset(address, queue(call, 0), TIMEOUT_MS);
            case "dispatchBehindBytes":
                return Long.parseLong(OutsideCluster.admin().fetchBrokerRuntimeStats(address).getTable()
                    .getOrDefault("dispatchBehindBytes", "0"));
            case "cleanUnusedTopic":
                OutsideCluster.admin().cleanUnusedTopicByAddr(address);
                return 0;
            default:
                return needsTheInside(call);
        }
    }

    private Object askOffsets(InvocationOnMock call) throws Exception {
        String group = call.getArgument(0);
        switch (call.getMethod().getName()) {
            case "queryOffset":
                return storedOffset(group, queue(call, 1));
            case "queryPullOffset":
                return OutsideCluster.api().getConsumeStats(address, group, call.<String>getArgument(1), TIMEOUT_MS)
                    .getOffsetTable().get(queue(call, 1)).getPullOffset();
            default:
                return needsTheInside(call);
        }
    }

    private long storedOffset(String group, MessageQueue queue) throws Exception {
        QueryConsumerOffsetRequestHeader question = new QueryConsumerOffsetRequestHeader();
        question.setConsumerGroup(group);
        question.setTopic(queue.getTopic());
        question.setQueueId(queue.getQueueId());
        question.setSetZeroIfNotFound(false);
        try {
            return OutsideCluster.api().queryConsumerOffset(address, question, TIMEOUT_MS);
        } catch (OffsetNotFoundException e) {
            return -1;
        }
    }

    private Object askTopics(InvocationOnMock call) throws Exception {
        switch (call.getMethod().getName()) {
            case "getTopicConfigTable":
                return OutsideCluster.admin().getAllTopicConfig(address, TIMEOUT_MS).getTopicConfigTable();
            case "updateTopicConfig":
                OutsideCluster.admin().createAndUpdateTopicConfig(address, call.getArgument(0));
                return null;
            default:
                return needsTheInside(call);
        }
    }

    private Object askGroups(InvocationOnMock call) throws Exception {
        switch (call.getMethod().getName()) {
            case "findSubscriptionGroupConfig":
                return group(call.getArgument(0));
            case "updateSubscriptionGroupConfig":
                OutsideCluster.admin().createAndUpdateSubscriptionGroupConfig(address, call.getArgument(0));
                return null;
            default:
                return needsTheInside(call);
        }
    }

    /** Tests change what they get and put it back, also for a group that is not there yet. */
    private SubscriptionGroupConfig group(String group) {
        try {
            SubscriptionGroupConfig found = OutsideCluster.admin().examineSubscriptionGroupConfig(address, group);
            if (found != null) {
                return found;
            }
        } catch (Exception e) {
            OutsideCluster.note("group " + group + ": " + e);
        }
        SubscriptionGroupConfig fresh = new SubscriptionGroupConfig();
        fresh.setGroupName(group);
        return fresh;
    }

    /** The queue that two neighbouring arguments of a call name: topic and queue id. */
    private MessageQueue queue(InvocationOnMock call, int first) {
        return new MessageQueue(call.getArgument(first), name, call.<Integer>getArgument(first + 1));
    }

    private void changed(Properties settings) throws Exception {
        if (isStopped) {
            forTheNextStart.putAll(settings);
        } else {
            OutsideCluster.admin().updateBrokerConfig(address, settings);
        }
    }

    @Override
    public void shutdown() {
        if (!isStopped) {
            OutsideCluster.stopBroker(number);
            isStopped = true;
        }
    }

    void startAgain() {
        if (isStopped) {
            OutsideCluster.startBroker(number, forTheNextStart);
            forTheNextStart.clear();
            isStopped = false;
        }
    }

    @Override
    public synchronized void registerBrokerAll(boolean checkOrderConfig, boolean oneway, boolean forceRegister) {
        Properties settings = new Properties();
        settings.setProperty(REGISTERING_SETTING, "6");
        try {
            changed(settings);
        } catch (Exception e) {
            OutsideCluster.note("registering " + name + ": " + e);
        }
    }

    /** Not thrown: some tests of a class that sets a hook do without it. */
    @Override
    public void registerServerRPCHook(RPCHook hook) {
        OutsideCluster.note("needs the broker inside this JVM: a hook around its requests");
    }

    @Override
    public BrokerConfig getBrokerConfig() {
        return brokerSettings == null ? super.getBrokerConfig() : brokerSettings;
    }

    @Override
    public MessageStoreConfig getMessageStoreConfig() {
        return storeSettings == null ? super.getMessageStoreConfig() : storeSettings;
    }

    @Override
    public MessageStore getMessageStore() {
        return store == null ? super.getMessageStore() : store;
    }

    @Override
    public ConsumerOffsetManager getConsumerOffsetManager() {
        return offsets == null ? super.getConsumerOffsetManager() : offsets;
    }

    @Override
    public TopicConfigManager getTopicConfigManager() {
        return topics == null ? super.getTopicConfigManager() : topics;
    }

    @Override
    public SubscriptionGroupManager getSubscriptionGroupManager() {
        return groups == null ? super.getSubscriptionGroupManager() : groups;
    }

    @Override
    public ConsumerOrderInfoManager getConsumerOrderInfoManager() {
        return orderInfo == null ? super.getConsumerOrderInfoManager() : orderInfo;
    }

    @Override
    public TopicQueueMappingCleanService getTopicQueueMappingCleanService() {
        return mappingCleaner == null ? super.getTopicQueueMappingCleanService() : mappingCleaner;
    }
}
