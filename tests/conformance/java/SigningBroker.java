import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.BrokerStartup;

/**
 * A broker of 4.9 that signs what it sends to the name server with -Daccess.key and -Dsecret.key. Its own start has no
 * option for that; 5.x has innerClientAuthenticationCredentials.
 */
public class SigningBroker {
    public static void main(String[] args) {
        BrokerController broker = BrokerStartup.createBrokerController(args);
        broker.registerClientRPCHook(new AclClientRPCHook(
            new SessionCredentials(System.getProperty("access.key"), System.getProperty("secret.key"))));
        BrokerStartup.start(broker);
    }
}
