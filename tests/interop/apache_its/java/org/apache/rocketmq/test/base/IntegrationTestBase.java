package org.apache.rocketmq.test.base;

import java.io.File;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicAttributes;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.attribute.Attribute;
import org.apache.rocketmq.common.attribute.CQType;
import org.apache.rocketmq.common.attribute.TopicMessageType;
import org.apache.rocketmq.logging.org.slf4j.Logger;
import org.apache.rocketmq.logging.org.slf4j.LoggerFactory;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.test.util.MQAdminTestUtils;
import org.junit.AssumptionViolatedException;

/**
 * Stands before Apache's class of this name on the class path: its tests "start" a cluster with it, and get handles of
 * one that runs outside of the JVM.
 *
 * <p>The names and signatures are those that Apache's compiled tests use.
 */
public class IntegrationTestBase {
    public static Logger logger = LoggerFactory.getLogger(IntegrationTestBase.class);
    public static volatile int commitLogSize = 100 << 20;

    protected static final String SEP = File.separator;
    protected static final String BROKER_NAME_PREFIX = "TestBrokerName_";
    protected static final AtomicInteger BROKER_INDEX = new AtomicInteger(0);
    protected static final List<File> TMPE_FILES = new ArrayList<>();
    protected static final List<BrokerController> BROKER_CONTROLLERS = new ArrayList<>();
    protected static final List<NamesrvController> NAMESRV_CONTROLLERS = new ArrayList<>();
    protected static final int INDEX_NUM = 1000;
    protected static int topicCreateTime = 30;

    private static final Map<String, OutsideBroker> BROKERS = new ConcurrentHashMap<>();

    static {
        System.setProperty("rocketmq.client.logRoot", System.getProperty("java.io.tmpdir"));
    }

    public static String createBaseDir() {
        return System.getProperty("java.io.tmpdir") + SEP + UUID.randomUUID();
    }

    public static NamesrvController createAndStartNamesrv() {
        return OutsideCluster.namesrv();
    }

    /** The next broker of the cluster. */
    public static BrokerController createAndStartBroker(String nsAddr) {
        int number = BROKER_INDEX.incrementAndGet();
        String name = BROKER_NAME_PREFIX + number;
        BROKERS.put(name, OutsideBroker.of(number, name, nsAddr, createBaseDir()));
        return BROKERS.get(name);
    }

    /** Starts again what a test has shut down. */
    public static BrokerController createAndStartBroker(MessageStoreConfig storeConfig, BrokerConfig brokerConfig) {
        OutsideBroker broker = BROKERS.get(brokerConfig.getBrokerName());
        if (broker == null) {
            throw new AssumptionViolatedException("needs a broker of its own: " + brokerConfig.getBrokerName());
        }
        broker.startAgain();
        return broker;
    }

    public static void createAndStartProxy(String nsAddr) {
        throw new AssumptionViolatedException("needs a proxy inside this JVM");
    }

    public static boolean initTopic(String topic, String nsAddr, String clusterName, CQType cqType) {
        return initTopic(topic, nsAddr, clusterName, BaseConf.QUEUE_NUMBERS, cqType);
    }

    public static boolean initTopic(String topic, String nsAddr, String clusterName, TopicMessageType type) {
        return initTopic(topic, nsAddr, clusterName, BaseConf.QUEUE_NUMBERS, CQType.SimpleCQ, type);
    }

    public static boolean initTopic(String topic, String nsAddr, String clusterName, int queueNumbers, CQType cqType) {
        return initTopic(topic, nsAddr, clusterName, queueNumbers, cqType, TopicMessageType.NORMAL);
    }

    public static boolean initTopic(String topic, String nsAddr, String clusterName, int queueNumbers, CQType cqType,
        TopicMessageType type) {
        return initTopic(topic, nsAddr, clusterName, queueNumbers, cqType, type, -1L);
    }

    public static boolean initTopic(String topic, String nsAddr, String clusterName, int queueNumbers, CQType cqType,
        TopicMessageType type, Long liteExpiration) {
        Map<String, String> attributes = new HashMap<>();
        if (cqType != CQType.SimpleCQ) {
            add(attributes, TopicAttributes.QUEUE_TYPE_ATTRIBUTE, cqType);
        }
        if (type != TopicMessageType.NORMAL) {
            add(attributes, TopicAttributes.TOPIC_MESSAGE_TYPE_ATTRIBUTE, type);
        }
        if (type == TopicMessageType.LITE) {
            add(attributes, TopicAttributes.LITE_EXPIRATION_ATTRIBUTE, liteExpiration);
        }
        return MQAdminTestUtils.createTopic(nsAddr, clusterName, topic, queueNumbers, attributes, topicCreateTime);
    }

    private static void add(Map<String, String> attributes, Attribute attribute, Object value) {
        attributes.put("+" + attribute.getName(), value.toString());
    }

    public static void initMQAdmin(String nsAddr) {
        try {
            MQAdminTestUtils.startAdmin(nsAddr);
        } catch (MQClientException e) {
            throw new IllegalStateException(e);
        }
    }

    public static void deleteFile(File file) {
        UtilAll.deleteFile(file);
    }
}
