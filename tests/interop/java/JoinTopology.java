import java.time.Duration;
import java.util.Arrays;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.ValueJoiner;

/**
 * Joins of two streams of bytes, inner, left and outer, and the foreign-key join of the tables that the streams make: a
 * value of the left one begins with the key of the right one, up to a `|`. Nothing has a name, so Kafka Streams names all.
 */
final class JoinTopology {
    private static final Serde<Bytes> BYTES = Serdes.Bytes();
    private static final JoinWindows WINDOWS =
        JoinWindows.ofTimeDifferenceAndGrace(Duration.ofMinutes(10), Duration.ofMinutes(10));
    private static final ValueJoiner<Bytes, Bytes, Bytes> JOINER = (left, right) -> left == null ? right : left;

    private JoinTopology() {}

    static void add(StreamsBuilder builder, String leftTopic, String rightTopic) {
        KStream<Bytes, Bytes> left = builder.stream(leftTopic, Consumed.with(BYTES, BYTES));
        KStream<Bytes, Bytes> right = builder.stream(rightTopic, Consumed.with(BYTES, BYTES));
        var serdes = StreamJoined.with(BYTES, BYTES, BYTES);
        left.join(right, JOINER, WINDOWS, serdes);
        left.leftJoin(right, JOINER, WINDOWS, serdes);
        left.outerJoin(right, JOINER, WINDOWS, serdes);
        KTable<Bytes, Bytes> orders = left.toTable(Materialized.with(BYTES, BYTES));
        KTable<Bytes, Bytes> customers = right.toTable(Materialized.with(BYTES, BYTES));
        orders.join(customers, JoinTopology::customer, JOINER);
    }

    private static Bytes customer(Bytes order) {
        byte[] value = order.get();
        for (int at = 0; at < value.length; at++) {
            if (value[at] == '|') {
                return Bytes.wrap(Arrays.copyOf(value, at));
            }
        }
        return null;
    }
}
