import java.util.Map;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.TimestampedKeyValueStore;
import org.apache.kafka.streams.state.ValueAndTimestamp;

/**
 * A global store with a processor of its own, which leaves values that begin with `-` out and puts `=` before those that
 * begin with `!`; and what is in global stores, as partition 0.
 */
final class GlobalStores {
    private GlobalStores() {}

    static void process(StreamsBuilder builder, String name, String topic) {
        var store = Stores.timestampedKeyValueStoreBuilder(
            Stores.persistentTimestampedKeyValueStore(name), Serdes.Bytes(), Serdes.ByteArray());
        builder.addGlobalStore(
            store, topic, Consumed.with(Serdes.Bytes(), Serdes.ByteArray()), () -> new Picky(name));
    }

    static void report(KafkaStreams streams, String store, long restored, Output output) {
        output.line("restored", store, 0, Map.of("records", restored));
        output.line("position", store, 0, Map.of("offsets", Map.of()));
        var rows = streams.store(StoreQueryParameters.fromNameAndType(
            store, QueryableStoreTypes.<Bytes, byte[]>timestampedKeyValueStore())).all();
        try (rows) {
            rows.forEachRemaining(row ->
                output.row(store, 0, row.key, null, row.value.value(), row.value.timestamp()));
        }
    }

    private static final class Picky implements Processor<Bytes, byte[], Void, Void> {
        private final String name;
        private TimestampedKeyValueStore<Bytes, byte[]> store;

        private Picky(String name) {
            this.name = name;
        }

        @Override
        public void init(ProcessorContext<Void, Void> context) {
            store = context.getStateStore(name);
        }

        @Override
        public void process(Record<Bytes, byte[]> record) {
            byte[] value = record.value();
            if (value != null && value.length > 0 && value[0] == '-') {
                return;
            }
            if (value != null && value.length > 0 && value[0] == '!') {
                value = value.clone();
                value[0] = '=';
            }
            store.put(record.key(), ValueAndTimestamp.make(value, record.timestamp()));
        }
    }
}
