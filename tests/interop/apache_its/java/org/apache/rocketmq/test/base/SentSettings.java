package org.apache.rocketmq.test.base;

import java.util.Properties;
import org.mockito.Mockito;
import org.mockito.invocation.InvocationOnMock;

/** Objects of settings whose setters also change the server outside: what a test sets holds where it runs. */
final class SentSettings {
    private SentSettings() {
    }

    /** Sends changed settings to a server, in the words of its configuration file. */
    interface Sender {
        void send(Properties changed) throws Exception;
    }

    /** An object with the same values as this one. */
    @SuppressWarnings("unchecked")
    static <T> T of(T values, Sender sender) {
        return (T) Mockito.mock(values.getClass(), Mockito.withSettings().spiedInstance(values).stubOnly().defaultAnswer(call -> {
            Object answer = call.callRealMethod();
            if (call.getMethod().getName().startsWith("set") && call.getArguments().length == 1) {
                send(sender, call);
            }
            return answer;
        }));
    }

    /** A refusal is noted and not thrown: what a test does then shows whether the setting mattered. */
    private static void send(Sender sender, InvocationOnMock setter) {
        String name = setter.getMethod().getName();
        Properties changed = new Properties();
        changed.setProperty(Character.toLowerCase(name.charAt(3)) + name.substring(4), String.valueOf(setter.getArguments()[0]));
        try {
            sender.send(changed);
            OutsideCluster.note("sent " + changed);
        } catch (Exception e) {
            OutsideCluster.note("refused " + changed + ": " + e);
        }
    }
}
