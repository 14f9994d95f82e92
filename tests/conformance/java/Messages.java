import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * Messages NAME_SERVER POLL_MS: a producer and any number of consumers, with one command per line of standard input. A line
 * "done …" ends the answer to each. Uses only what 4.9.3 and 5.5.0 have in common.
 */
public class Messages {
    static final long TIMEOUT_MS = 120_000;
    static final Map<String, Set<String>> received = new ConcurrentHashMap<>();
    static final Map<String, AtomicInteger> deliveries = new ConcurrentHashMap<>();
    static String nameServer;
    static int pollMs;
    static DefaultMQProducer producer;

    public static void main(String[] args) {
        nameServer = args[0];
        pollMs = Integer.parseInt(args[1]);
        try {
            producer = new DefaultMQProducer("producers" + System.nanoTime(), hook());
            producer.setNamesrvAddr(nameServer);
            producer.setPollNameServerInterval(pollMs);
            producer.setSendMsgTimeout(20_000);  // 3 s are too short for a first message on a busy machine
            producer.start();
            System.out.println("done");
            BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                execute(line.split(" "));
            }
        } catch (Throwable e) {  // threads of the client would keep the process running
            e.printStackTrace();
            Runtime.getRuntime().halt(2);
        }
        Runtime.getRuntime().halt(0);
    }

    /** The hook that signs all requests, if -Daccess.key and -Dsecret.key are set. */
    static RPCHook hook() {
        String key = System.getProperty("access.key");
        return key == null ? null : new AclClientRPCHook(new SessionCredentials(key, System.getProperty("secret.key")));
    }

    static void execute(String[] words) {
        String answer;
        try {
            switch (words[0]) {
                case "send": answer = send(words); break;
                case "subscribe": answer = subscribe(words[1], words[2].split(","), words.length > 3); break;
                case "await": answer = await(words[1], Integer.parseInt(words[2])); break;
                case "queues": answer = names(producer.fetchPublishMessageQueues(words[1])); break;
                default: answer = "unknown " + words[0];
            }
        } catch (Throwable e) {
            answer = "failed " + e.toString().replace('\n', ' ');
        }
        System.out.println("done " + answer);
    }

    static String names(Iterable<MessageQueue> queues) {
        Set<String> names = new TreeSet<>();
        for (MessageQueue queue : queues) names.add(queue.getBrokerName() + ":" + queue.getQueueId());
        return String.join(",", names);
    }

    /** send TOPIC FROM TO [PAUSE_MS]: sends one message for each number. "longest" is the time between two successes. */
    static String send(String[] words) throws InterruptedException {
        String topic = words[1];
        int from = Integer.parseInt(words[2]), to = Integer.parseInt(words[3]);
        int pauseMs = words.length > 4 ? Integer.parseInt(words[4]) : 0;
        int failures = 0;
        long success = System.nanoTime(), longest = 0;
        String last = "";
        Set<String> brokers = new TreeSet<>();
        for (int i = from; i < to; i++) {
            for (long end = System.currentTimeMillis() + TIMEOUT_MS; ; ) {
                try {
                    SendResult sent = producer.send(new Message(topic, "tag", "key" + i, (topic + "/" + i).getBytes()));
                    brokers.add(sent.getMessageQueue().getBrokerName());
                    longest = Math.max(longest, System.nanoTime() - success);
                    success = System.nanoTime();
                    break;
                } catch (Exception e) {
                    failures++;
                    last = e.toString().replace('\n', ' ');
                    if (System.currentTimeMillis() > end) return "gave up at " + i + ": " + last;
                }
            }
            Thread.sleep(pauseMs);
            if ((i + 1) % 100 == 0) System.out.println("sent " + (i + 1));
        }
        return "sent " + (to - from) + " failures " + failures + " through " + String.join(",", brokers)
            + " longest " + longest / 1_000_000 + " ms " + last;
    }

    /** subscribe GROUP TOPIC,… [pop]: from the first message on. With pop, the broker assigns the queues. */
    static String subscribe(String group, String[] topics, boolean pop) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group, hook(), new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(nameServer);
        consumer.setPollNameServerInterval(pollMs);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        if (pop) DefaultMQPushConsumer.class.getMethod("setClientRebalance", boolean.class).invoke(consumer, false);
        for (String topic : topics) consumer.subscribe(topic, "*");
        Set<String> bodies = received.computeIfAbsent(group, key -> ConcurrentHashMap.newKeySet());
        AtomicInteger count = deliveries.computeIfAbsent(group, key -> new AtomicInteger());
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            count.addAndGet(messages.size());
            bodies.addAll(messages.stream().map(message -> new String(message.getBody())).collect(Collectors.toSet()));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return "subscribed";
    }

    /** await GROUP N: waits for N different messages. */
    static String await(String group, int count) throws Exception {
        Set<String> bodies = received.get(group);
        for (long end = System.currentTimeMillis() + TIMEOUT_MS; bodies.size() < count && System.currentTimeMillis() < end; ) {
            Thread.sleep(20);
        }
        return "got " + bodies.size() + " of " + deliveries.get(group) + " deliveries";
    }
}
