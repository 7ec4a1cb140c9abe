import java.time.Duration;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;

/**
 * What the DSL makes of a stream of bytes, with names of its own where it may have them: `closed` are sessions and
 * `closed-windows` windows that are emitted when they close, `counts` are windows whose results `held` suppresses,
 * `prices` is a versioned table of the same topic, and `priced` joins the stream with it behind a grace period.
 */
final class DslTopology {
    private static final Duration GAP = Duration.ofMinutes(5);
    private static final Duration GRACE = Duration.ofMinutes(10);

    private DslTopology() {}

    static void add(StreamsBuilder builder, String topic, String table) {
        KStream<Bytes, byte[]> records = builder.stream(topic, Consumed.with(Serdes.Bytes(), Serdes.ByteArray()));
        records.groupByKey()
            .windowedBy(SessionWindows.ofInactivityGapAndGrace(GAP, GRACE))
            .emitStrategy(EmitStrategy.onWindowClose())
            .count(Materialized.as("closed"));
        records.groupByKey()
            .windowedBy(TimeWindows.ofSizeAndGrace(GAP, GRACE))
            .emitStrategy(EmitStrategy.onWindowClose())
            .count(Materialized.as("closed-windows"));
        records.groupByKey()
            .windowedBy(TimeWindows.ofSizeAndGrace(GAP, GRACE))
            .count(Materialized.<Bytes, Long, WindowStore<Bytes, byte[]>>as("counts").withCachingDisabled())
            .suppress(Suppressed.untilTimeLimit(Duration.ofHours(1), BufferConfig.unbounded()).withName("held"));
        var prices = builder.table(table, Consumed.with(Serdes.Bytes(), Serdes.ByteArray()), Materialized.<Bytes, byte[]>as(
            Stores.persistentVersionedKeyValueStore("prices", Duration.ofHours(1)))
            .withKeySerde(Serdes.Bytes()).withValueSerde(Serdes.ByteArray()));
        records.join(
            prices,
            (value, price) -> price,
            Joined.with(Serdes.Bytes(), Serdes.ByteArray(), Serdes.ByteArray(), "priced", GRACE));
    }
}
