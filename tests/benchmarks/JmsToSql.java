import jakarta.jms.ConnectionFactory;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.artemis.jms.client.ActiveMQJMSConnectionFactory;

/**
 * A consumer written in an afternoon: a durable subscription, a batch, two commits.
 *
 * <p>{@code JmsToSql activemq|artemis BROKER-URL TOPIC JDBC-URL COLUMNS}. For each line on standard
 * input it empties the subscription and prints the number of messages and two times (ms since
 * 1970): when the first message could arrive, and when the last one was committed.
 */
public final class JmsToSql {
    private static final int BATCH = 1000;

    public static void main(String[] args) throws Exception {
        ConnectionFactory broker = args[0].equals("activemq")
            ? new ActiveMQConnectionFactory(args[1]) : new ActiveMQJMSConnectionFactory(args[1]);
        List<String> columns = Arrays.asList(args[4].split(","));
        var calls = new BufferedReader(new InputStreamReader(System.in));
        while (calls.readLine() != null) {
            System.out.println(drain(broker, args[2], args[3], columns));
        }
    }

    private static String drain(
            ConnectionFactory factory, String topic, String database, List<String> columns)
            throws Exception {
        try (var broker = factory.createConnection();
                var sql = DriverManager.getConnection(database);
                PreparedStatement insert = sql.prepareStatement(insertInto("plain", columns))) {
            sql.setAutoCommit(false);
            broker.setClientID("java");
            Session session = broker.createSession(true, Session.SESSION_TRANSACTED);
            MessageConsumer consumer = session.createDurableSubscriber(session.createTopic(topic), "java");
            broker.start();
            long began = System.currentTimeMillis(), ended = began;
            int messages = 0, batch = 0;
            while (true) {
                Message message = consumer.receive(batch > 0 ? 100 : 2000);
                if (message != null) {
                    addRow(insert, (TextMessage) message, columns);
                    batch++;
                }
                if (batch == BATCH || batch > 0 && message == null) {
                    insert.executeBatch();
                    sql.commit();
                    session.commit();
                    ended = System.currentTimeMillis();
                    messages += batch;
                    batch = 0;
                } else if (message == null) {
                    return messages + " " + began + " " + ended;
                }
            }
        }
    }

    private static String insertInto(String table, List<String> columns) {
        return "INSERT INTO " + table + " (" + String.join(", ", columns) + ") VALUES ("
            + "?, ".repeat(columns.size() - 1) + "?) ON CONFLICT DO NOTHING";
    }

    private static void addRow(PreparedStatement insert, TextMessage message, List<String> columns)
            throws Exception {
        Map<String, String> values = parse(message.getText());
        values.put("messageid", message.getStringProperty("samMessageId"));
        for (int n = 0; n < columns.size(); n++) {
            insert.setString(n + 1, values.get(columns.get(n)));
        }
        insert.addBatch();
    }

    private static Map<String, String> parse(String record) {
        Map<String, String> values = new HashMap<>();
        for (String line : record.split("\n")) {
            int colon = line.indexOf(": ");
            if (colon > 0) {
                values.put(line.substring(0, colon).toLowerCase(), line.substring(colon + 2));
            }
        }
        return values;
    }
}
