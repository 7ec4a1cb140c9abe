import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.state.QueryableStoreType;
import org.apache.kafka.streams.state.SessionStoreWithHeaders;
import org.apache.kafka.streams.state.TimestampedKeyValueStoreWithHeaders;
import org.apache.kafka.streams.state.TimestampedWindowStoreWithHeaders;
import org.apache.kafka.streams.state.internals.StateStoreProvider;

/** Asks a running Kafka Streams for everything in its stores with headers, headers included. */
final class HeadersContents {
    private final KafkaStreams streams;
    private final Output output;

    HeadersContents(KafkaStreams streams, Output output) {
        this.streams = streams;
        this.output = output;
    }

    void report(StoreSpec store, int partition) {
        switch (store.kind()) {
            case KV -> {
                TimestampedKeyValueStoreWithHeaders<Bytes, byte[]> opened =
                    open(store, partition, TimestampedKeyValueStoreWithHeaders.class);
                try (var rows = opened.all()) {
                    rows.forEachRemaining(row -> output.row(
                        store.name(), partition, row.key, null,
                        row.value.value(), row.value.timestamp(), row.value.headers()));
                }
            }
            case WINDOW -> {
                TimestampedWindowStoreWithHeaders<Bytes, byte[]> opened =
                    open(store, partition, TimestampedWindowStoreWithHeaders.class);
                try (var rows = opened.all()) {
                    rows.forEachRemaining(row -> output.row(
                        store.name(), partition, row.key.key(), row.key.window(),
                        row.value.value(), row.value.timestamp(), row.value.headers()));
                }
            }
            case SESSION -> {
                SessionStoreWithHeaders<Bytes, byte[]> opened = open(store, partition, SessionStoreWithHeaders.class);
                try (var rows = opened.fetch(null, null)) {  // open at both ends: every key
                    rows.forEachRemaining(row -> output.row(
                        store.name(), partition, row.key.key(), row.key.window(),
                        row.value.aggregation(), null, row.value.headers()));
                }
            }
        }
    }

    @SuppressWarnings("unchecked")
    private <T> T open(StoreSpec store, int partition, Class<?> type) {
        QueryableStoreType<T> itself = (QueryableStoreType<T>) new Itself<>(type);
        return streams.store(StoreQueryParameters.fromNameAndType(store.name(), itself).withPartition(partition));
    }

    /** Stores of a type as they are: those of QueryableStoreTypes take headers off. */
    private record Itself<T>(Class<T> type) implements QueryableStoreType<T> {
        @Override
        public boolean accepts(StateStore store) {
            return type.isInstance(store);
        }

        @Override
        public T create(StateStoreProvider provider, String name) {
            return provider.stores(name, this).get(0);
        }
    }
}
