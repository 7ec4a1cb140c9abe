import java.time.Instant;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.query.KeyQuery;
import org.apache.kafka.streams.query.Position;
import org.apache.kafka.streams.query.Query;
import org.apache.kafka.streams.query.StateQueryRequest;
import org.apache.kafka.streams.query.WindowKeyQuery;
import org.apache.kafka.streams.query.WindowRangeQuery;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.QueryableStoreType;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ValueAndTimestamp;

/** Asks a running Kafka Streams for everything in its stores, with interactive queries. */
final class Contents {
    private static final Bytes ANY_KEY = Bytes.wrap(new byte[] {0});

    private final KafkaStreams streams;
    private final Output output;

    Contents(KafkaStreams streams, Output output) {
        this.streams = streams;
        this.output = output;
    }

    void report(StoreSpec store, int partition) {
        output.line("position", store.name(), partition, Map.of("offsets", position(store, partition)));
        switch (store.kind()) {
            case KV -> {
                if (store.timestamped()) {
                    timestampedKeyValues(store, partition);
                } else {
                    keyValues(store, partition);
                }
            }
            case WINDOW -> {
                if (store.timestamped()) {
                    timestampedWindows(store, partition);
                } else {
                    windows(store, partition);
                }
            }
            case SESSION -> sessions(store, partition);
        }
    }

    private void keyValues(StoreSpec store, int partition) {
        try (var rows = open(store, partition, QueryableStoreTypes.<Bytes, byte[]>keyValueStore()).all()) {
            rows.forEachRemaining(row -> output.row(store.name(), partition, row.key, null, row.value, null));
        }
    }

    private void timestampedKeyValues(StoreSpec store, int partition) {
        try (var rows = open(store, partition, QueryableStoreTypes.<Bytes, byte[]>timestampedKeyValueStore()).all()) {
            rows.forEachRemaining(row -> output.row(
                store.name(), partition, row.key, null, row.value.value(), row.value.timestamp()));
        }
    }

    private void windows(StoreSpec store, int partition) {
        try (var rows = open(store, partition, QueryableStoreTypes.<Bytes, byte[]>windowStore()).all()) {
            windowed(store, partition, rows);
        }
    }

    private void timestampedWindows(StoreSpec store, int partition) {
        try (var rows = open(store, partition, QueryableStoreTypes.<Bytes, byte[]>timestampedWindowStore()).all()) {
            while (rows.hasNext()) {
                KeyValue<Windowed<Bytes>, ValueAndTimestamp<byte[]>> row = rows.next();
                output.row(
                    store.name(), partition, row.key.key(), row.key.window(), row.value.value(), row.value.timestamp());
            }
        }
    }

    private void sessions(StoreSpec store, int partition) {
        // Open at both ends: every key.
        try (var rows = open(store, partition, QueryableStoreTypes.<Bytes, byte[]>sessionStore()).fetch(null, null)) {
            windowed(store, partition, rows);
        }
    }

    private void windowed(StoreSpec store, int partition, KeyValueIterator<Windowed<Bytes>, byte[]> rows) {
        rows.forEachRemaining(row ->
            output.row(store.name(), partition, row.key.key(), row.key.window(), row.value, null));
    }

    private <T> T open(StoreSpec store, int partition, QueryableStoreType<T> type) {
        return streams.store(StoreQueryParameters.fromNameAndType(store.name(), type).withPartition(partition));
    }

    /** The input offsets, by topic and partition, up to which the store says that it was written. */
    private Map<String, Map<Integer, Long>> position(StoreSpec store, int partition) {
        Query<?> anyQuery = switch (store.kind()) {
            case KV -> KeyQuery.withKey(ANY_KEY);
            case WINDOW -> WindowKeyQuery.withKeyAndWindowStartRange(ANY_KEY, Instant.EPOCH, Instant.EPOCH);
            case SESSION -> WindowRangeQuery.withKey(ANY_KEY);
        };
        var request = StateQueryRequest.inStore(store.name()).withQuery(anyQuery);
        var result = streams.query(request).getPartitionResults().get(partition);
        if (result == null || result.isFailure()) {
            throw new IllegalStateException(store.name() + " " + partition + ": "
                + (result == null ? "no such partition here" : result.getFailureMessage()));
        }
        Position position = result.getPosition();
        Map<String, Map<Integer, Long>> offsets = new TreeMap<>();
        for (String topic : position.getTopics()) {
            offsets.put(topic, new TreeMap<>(position.getPartitionPositions(topic)));
        }
        return offsets;
    }
}
