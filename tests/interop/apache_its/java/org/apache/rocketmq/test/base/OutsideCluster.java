package org.apache.rocketmq.test.base;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Collections;
import java.util.Properties;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * The NameServer and the brokers that the tests run against: processes outside of this JVM.
 *
 * <p>System properties say where they listen (its.namesrv: a port; its.brokers: ports with commas), and where whoever
 * started them can be asked to stop and start one (its.control: a port that takes one line and answers one).
 */
final class OutsideCluster {
    static final String HOST = "127.0.0.1";
    private static final int NAMESRV_PORT = Integer.getInteger("its.namesrv");
    private static final int[] BROKER_PORTS =
        Arrays.stream(System.getProperty("its.brokers").split(",")).mapToInt(Integer::parseInt).toArray();
    private static final int CONTROL_PORT = Integer.getInteger("its.control");
    private static final int CONTROL_TIMEOUT_MS = 180_000;
    private static final long ADMIN_TIMEOUT_MS = 15_000;

    private static DefaultMQAdminExt admin;

    private OutsideCluster() {
    }

    /** The port of a broker; the first one has number 1. */
    static int brokerPort(int number) {
        return BROKER_PORTS[number - 1];
    }

    /** A handle that was never started: it knows the NameServer's port, and sends settings that are changed there. */
    static NamesrvController namesrv() {
        NettyServerConfig network = new NettyServerConfig();
        network.setListenPort(NAMESRV_PORT);
        NamesrvConfig settings = SentSettings.of(new NamesrvConfig(), changed ->
            admin().updateNameServerConfig(changed, Collections.singletonList(HOST + ":" + NAMESRV_PORT)));
        return new NamesrvController(new NamesrvConfig(), network) {
            @Override
            public NamesrvConfig getNamesrvConfig() {
                return settings;
            }
        };
    }

    static synchronized DefaultMQAdminExt admin() throws Exception {
        if (admin == null) {
            DefaultMQAdminExt fresh = new DefaultMQAdminExt("its_admin_group", ADMIN_TIMEOUT_MS);
            fresh.setInstanceName("its_admin");
            fresh.setNamesrvAddr(HOST + ":" + NAMESRV_PORT);
            fresh.start();
            admin = fresh;
        }
        return admin;
    }

    static MQClientAPIImpl api() throws Exception {
        return admin().getDefaultMQAdminExtImpl().getMqClientInstance().getMQClientAPIImpl();
    }

    static void stopBroker(int number) {
        ask("stop " + number);
    }

    static void startBroker(int number, Properties settings) {
        StringBuilder line = new StringBuilder("start " + number);
        settings.forEach((key, value) -> line.append(' ').append(key).append('=').append(value));
        ask(line.toString());
    }

    private static void ask(String line) {
        try (Socket socket = new Socket(HOST, CONTROL_PORT)) {
            socket.setSoTimeout(CONTROL_TIMEOUT_MS);
            socket.getOutputStream().write((line + "\n").getBytes(StandardCharsets.UTF_8));
            String answer = new BufferedReader(new InputStreamReader(socket.getInputStream(), StandardCharsets.UTF_8)).readLine();
            note(line + ": " + answer);
            if (!"ok".equals(answer)) {
                throw new IllegalStateException(line + ": " + answer);
            }
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** A line in the output of the test that explains what happened to it. */
    static void note(String text) {
        System.out.println("[outside] " + text);
    }
}
