import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collections;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.producer.Producer;

/** Grpc ENDPOINT: the client of RocketMQ 5 for proxies, with the commands of Messages. */
public class Grpc {
    static final Set<String> received = ConcurrentHashMap.newKeySet();

    public static void main(String[] args) {
        ClientServiceProvider provider = ClientServiceProvider.loadService();
        ClientConfiguration configuration = ClientConfiguration.newBuilder().setEndpoints(args[0]).enableSsl(false)
            .setRequestTimeout(Duration.ofSeconds(30)).build();  // 3 s are too short for a first call on a busy machine
        System.out.println("done");
        try {
            BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String[] words = line.split(" ");
                String answer;
                try {
                    answer = execute(provider, configuration, words);
                } catch (Throwable e) {
                    e.printStackTrace();
                    while (e.getCause() != null) e = e.getCause();
                    answer = "failed " + e.toString().replace('\n', ' ');
                }
                System.out.println("done " + answer);
            }
        } catch (Throwable e) {
            e.printStackTrace();
        }
        Runtime.getRuntime().halt(0);
    }

    static String execute(ClientServiceProvider provider, ClientConfiguration configuration, String[] words) throws Exception {
        switch (words[0]) {
            case "send":  // TOPIC FROM TO
                try (Producer producer = provider.newProducerBuilder().setClientConfiguration(configuration).setTopics(words[1]).build()) {
                    for (int i = Integer.parseInt(words[2]); i < Integer.parseInt(words[3]); i++) {
                        byte[] body = (words[1] + "/" + i).getBytes(StandardCharsets.UTF_8);
                        producer.send(provider.newMessageBuilder().setTopic(words[1]).setBody(body).build());
                    }
                }
                return "sent";
            case "subscribe":  // GROUP TOPIC
                provider.newPushConsumerBuilder().setClientConfiguration(configuration).setConsumerGroup(words[1])
                    .setSubscriptionExpressions(Collections.singletonMap(words[2], FilterExpression.SUB_ALL))
                    .setMessageListener(message -> {
                        received.add(StandardCharsets.UTF_8.decode(message.getBody()).toString());
                        return ConsumeResult.SUCCESS;
                    }).build();
                return "subscribed";
            case "await":  // GROUP N
                int count = Integer.parseInt(words[2]);
                for (long end = System.currentTimeMillis() + 120_000; received.size() < count && System.currentTimeMillis() < end; ) {
                    Thread.sleep(20);
                }
                return "got " + received.size();
            default:
                return "unknown " + words[0];
        }
    }
}
