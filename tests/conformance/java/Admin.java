import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.util.Arrays;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * mqadmin as one process for many commands: one per line, with tabs between the words. A line "done" follows the output of
 * each. The command "library NAME_SERVER METHOD ARGUMENT…" calls a method of the client library instead.
 */
public class Admin {
    static final PrintStream out = System.out;

    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        out.println("done");
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ByteArrayOutputStream output = new ByteArrayOutputStream();
            PrintStream captured = new PrintStream(output, true);
            System.setOut(captured);
            System.setErr(captured);
            String[] words = line.split("\t");
            try {
                if (words[0].equals("library")) {
                    captured.println(call(words[1], words[2], Arrays.copyOfRange(words, 3, words.length)));
                } else {
                    MQAdminStartup.main0(words, null);
                }
            } catch (Throwable e) {
                Throwable cause = e.getCause() == null ? e : e.getCause();
                captured.println("failed: " + cause);
            }
            captured.flush();
            out.print(output);
            out.println();
            out.println("done");
        }
        Runtime.getRuntime().halt(0);
    }

    /** Calls a method of the admin interface or of the client, whose methods have a timeout in milliseconds as last argument. */
    static Object call(String nameServer, String name, String[] arguments) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt(10_000);
        admin.setInstanceName("admin" + System.nanoTime());
        admin.setNamesrvAddr(nameServer);
        admin.start();
        try {
            MQClientAPIImpl api = admin.getDefaultMQAdminExtImpl().getMqClientInstance().getMQClientAPIImpl();
            for (Object target : new Object[] {admin, api}) {
                for (Method method : target.getClass().getMethods()) {
                    int missing = method.getParameterCount() - arguments.length;
                    if (!method.getName().equals(name) || missing != (target == api ? 1 : 0)) continue;
                    Object[] values = new Object[method.getParameterCount()];
                    for (int i = 0; i < values.length; i++) {
                        values[i] = i < arguments.length ? convert(arguments[i], method.getParameterTypes()[i]) : (Object) 10_000L;
                    }
                    Object result = method.invoke(target, values);
                    return result instanceof org.apache.rocketmq.remoting.protocol.RemotingSerializable
                        ? ((org.apache.rocketmq.remoting.protocol.RemotingSerializable) result).toJson() : result;
                }
            }
            return "no method " + name;
        } finally {
            admin.shutdown();
        }
    }

    static Object convert(String text, Class<?> type) {
        if (type == boolean.class) return Boolean.parseBoolean(text);
        if (type == int.class) return Integer.parseInt(text);
        if (type == long.class) return Long.parseLong(text);
        if (type == java.util.Set.class) return new java.util.HashSet<>(Arrays.asList(text.split(",")));
        return text;
    }
}
