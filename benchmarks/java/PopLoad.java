import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.AckCallback;
import org.apache.rocketmq.client.consumer.AckResult;
import org.apache.rocketmq.client.consumer.PopCallback;
import org.apache.rocketmq.client.consumer.PopResult;
import org.apache.rocketmq.client.consumer.PopStatus;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.client.impl.MQClientManager;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.header.AckMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ExtraInfoUtil;
import org.apache.rocketmq.remoting.protocol.header.PopMessageRequestHeader;

/**
 * Pops and acknowledges with the calls of Apache's own client, by several threads. Each line of its input, "at-once
 * messages", is a round; it answers with the messages and the seconds that the round took. So one process is warmed up by
 * its first rounds and measured in the later ones.
 */
public class PopLoad {
  static final long TIMEOUT_MS = 30_000;

  static final class Done<T> extends CompletableFuture<T> implements PopCallback, AckCallback {
    @SuppressWarnings("unchecked")
    public void onSuccess(PopResult result) {
      complete((T) result);
    }

    @SuppressWarnings("unchecked")
    public void onSuccess(AckResult result) {
      complete((T) result);
    }

    public void onException(Throwable failure) {
      completeExceptionally(failure);
    }
  }

  public static void main(String[] arguments) throws Exception {
    String address = arguments[1], broker = arguments[2], topic = arguments[3], group = arguments[4];
    int workers = Integer.parseInt(arguments[5]);
    ClientConfig config = new ClientConfig();
    config.setNamesrvAddr(arguments[0]);
    MQClientInstance instance = MQClientManager.getInstance().getOrCreateMQClientInstance(config);
    instance.start();
    MQClientAPIImpl calls = instance.getMQClientAPIImpl();
    BufferedReader rounds = new BufferedReader(new InputStreamReader(System.in));
    for (String line = rounds.readLine(); line != null; line = rounds.readLine()) {
      String[] words = line.trim().split(" ");
      int atOnce = Integer.parseInt(words[0]);
      long wanted = Long.parseLong(words[1]);
      long began = System.nanoTime();
      long taken = round(workers, wanted, () -> once(calls, address, broker, topic, group, atOnce));
      System.out.println(taken + " " + (System.nanoTime() - began) / 1e9);
    }
    System.exit(0);
  }

  static long round(int workers, long wanted, Callable<Integer> once) throws InterruptedException {
    AtomicLong taken = new AtomicLong();
    List<Thread> threads = new ArrayList<>();
    for (int number = 0; number < workers; number++) {
      Thread thread = new Thread(() -> {
        try {
          while (taken.get() < wanted) {
            int count = once.call();
            if (count == 0) {
              return;
            }
            taken.addAndGet(count);
          }
        } catch (Exception failure) {
          failure.printStackTrace();
          System.exit(1);
        }
      });
      thread.start();
      threads.add(thread);
    }
    for (Thread thread : threads) {
      thread.join();
    }
    return taken.get();
  }

  static int once(MQClientAPIImpl calls, String address, String broker, String topic, String group, int atOnce)
      throws Exception {
    PopMessageRequestHeader header = new PopMessageRequestHeader();
    header.setTopic(topic);
    header.setConsumerGroup(group);
    header.setQueueId(-1);
    header.setMaxMsgNums(atOnce);
    header.setInvisibleTime(600_000);
    header.setPollTime(0);
    header.setBornTime(System.currentTimeMillis());
    header.setInitMode(0);
    header.setExpType("TAG");
    header.setExp("*");
    header.setOrder(false);
    header.setBrokerName(broker);
    Done<PopResult> popped = new Done<>();
    calls.popMessageAsync(broker, address, header, TIMEOUT_MS, popped);
    PopResult result = popped.get(TIMEOUT_MS, TimeUnit.MILLISECONDS);
    if (result.getPopStatus() != PopStatus.FOUND) {
      return 0;
    }
    List<String> receipts = new ArrayList<>();
    for (MessageExt message : result.getMsgFoundList()) {
      receipts.add(message.getProperty(MessageConst.PROPERTY_POP_CK));
    }
    if (atOnce > 1) {
      Done<AckResult> acked = new Done<>();
      calls.batchAckMessageAsync(address, TIMEOUT_MS, acked, topic, group, receipts);
      acked.get(TIMEOUT_MS, TimeUnit.MILLISECONDS);
      return receipts.size();
    }
    for (String receipt : receipts) {
      String[] parts = ExtraInfoUtil.split(receipt);
      AckMessageRequestHeader ack = new AckMessageRequestHeader();
      ack.setTopic(ExtraInfoUtil.getRealTopic(parts, topic, group));
      ack.setConsumerGroup(group);
      ack.setQueueId(ExtraInfoUtil.getQueueId(parts));
      ack.setOffset(ExtraInfoUtil.getQueueOffset(parts));
      ack.setExtraInfo(receipt);
      ack.setBrokerName(broker);
      Done<AckResult> acked = new Done<>();
      calls.ackMessageAsync(address, TIMEOUT_MS, acked, ack);
      acked.get(TIMEOUT_MS, TimeUnit.MILLISECONDS);
    }
    return receipts.size();
  }
}
