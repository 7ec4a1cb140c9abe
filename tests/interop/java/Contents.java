import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.query.KeyQuery;
import org.apache.kafka.streams.query.MultiVersionedKeyQuery;
import org.apache.kafka.streams.query.Position;
import org.apache.kafka.streams.query.Query;
import org.apache.kafka.streams.query.StateQueryRequest;
import org.apache.kafka.streams.query.VersionedKeyQuery;
import org.apache.kafka.streams.query.WindowKeyQuery;
import org.apache.kafka.streams.query.WindowRangeQuery;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.QueryableStoreType;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ValueAndTimestamp;
import org.apache.kafka.streams.state.VersionedRecord;
import org.apache.kafka.streams.state.VersionedRecordIterator;

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
        // Only keys of the store's own type can be asked for, and Kafka Streams keeps that type to itself.
        var position = store.format() == StoreSpec.Format.LISTS ? Map.of() : position(store, partition);
        output.line("position", store.name(), partition, Map.of("offsets", position));
        if (store.headers()) {
            new HeadersContents(streams, output).report(store, partition);
            return;
        }
        switch (store.kind()) {
            case KV -> {
                if (store.format() == StoreSpec.Format.VERSIONED) {
                    versions(store, partition);
                } else if (store.timestamped()) {
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

    /** The history of each key, oldest first, with the times from and until which a value is valid (largest: it is). */
    private void versions(StoreSpec store, int partition) {
        for (Bytes key : store.keys()) {
            Query<VersionedRecordIterator<byte[]>> history =
                MultiVersionedKeyQuery.<Bytes, byte[]>withKey(key).withAscendingTimestamps();
            try (var versions = ask(store, partition, history)) {
                while (versions.hasNext()) {
                    VersionedRecord<byte[]> version = versions.next();
                    long until = version.validTo().orElse(Long.MAX_VALUE);
                    var valid = new SessionWindow(version.timestamp(), until);
                    output.row(store.name(), partition, key, valid, version.value(), version.timestamp());
                }
            }
            Query<VersionedRecord<byte[]>> latest = VersionedKeyQuery.withKey(key);
            VersionedRecord<byte[]> found = ask(store, partition, latest);
            if (found != null) {
                output.row(store.name(), partition, key, null, found.value(), found.timestamp());
            }
        }
    }

    /** What the keys had at a time, each as a row that starts and ends then. */
    void versionsAsOf(StoreSpec store, int partition, long time) {
        for (Bytes key : store.keys()) {
            Query<VersionedRecord<byte[]>> query =
                VersionedKeyQuery.<Bytes, byte[]>withKey(key).asOf(Instant.ofEpochMilli(time));
            VersionedRecord<byte[]> found = ask(store, partition, query);
            if (found != null) {
                var then = new SessionWindow(time, time);
                output.row(store.name(), partition, key, then, found.value(), found.timestamp());
            }
        }
    }

    private <T> T ask(StoreSpec store, int partition, Query<T> query) {
        var request = StateQueryRequest.inStore(store.name()).withQuery(query).withPartitions(Set.of(partition));
        return streams.query(request).getPartitionResults().get(partition).getResult();
    }

    private void keyValues(StoreSpec store, int partition) {
        try (var rows = open(store, partition, QueryableStoreTypes.<Object, Object>keyValueStore()).all()) {
            rows.forEachRemaining(row ->
                output.row(store.name(), partition, Bytes.wrap(bytes(row.key)), null, bytes(row.value), null));
        }
    }

    private void timestampedKeyValues(StoreSpec store, int partition) {
        try (var rows = open(store, partition, QueryableStoreTypes.<Bytes, Object>timestampedKeyValueStore()).all()) {
            rows.forEachRemaining(row -> output.row(
                store.name(), partition, row.key, null, bytes(row.value.value()), row.value.timestamp()));
        }
    }

    private void windows(StoreSpec store, int partition) {
        try (var rows = open(store, partition, QueryableStoreTypes.<Bytes, Object>windowStore()).all()) {
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
        try (var rows = open(store, partition, QueryableStoreTypes.<Bytes, Object>sessionStore()).fetch(null, null)) {
            windowed(store, partition, rows);
        }
    }

    private void windowed(StoreSpec store, int partition, KeyValueIterator<Windowed<Bytes>, Object> rows) {
        rows.forEachRemaining(row ->
            output.row(store.name(), partition, row.key.key(), row.key.window(), bytes(row.value), null));
    }

    /** A key or a value; of types that Kafka Streams keeps to itself, what it prints of it. */
    private static byte[] bytes(Object found) {
        if (found instanceof Bytes bytes) {
            return bytes.get();
        }
        return found instanceof byte[] bytes ? bytes : found.toString().getBytes(StandardCharsets.UTF_8);
    }

    private <T> T open(StoreSpec store, int partition, QueryableStoreType<T> type) {
        return streams.store(StoreQueryParameters.fromNameAndType(store.name(), type).withPartition(partition));
    }

    /** The input offsets, by topic and partition, up to which the store says that it was written. */
    private Map<String, Map<Integer, Long>> position(StoreSpec store, int partition) {
        Query<?> anyQuery = switch (store.kind()) {
            case KV -> store.format() == StoreSpec.Format.VERSIONED
                ? VersionedKeyQuery.withKey(ANY_KEY) : KeyQuery.withKey(ANY_KEY);
            case WINDOW -> WindowKeyQuery.withKeyAndWindowStartRange(ANY_KEY, Instant.EPOCH, Instant.EPOCH);
            case SESSION -> WindowRangeQuery.withKey(ANY_KEY);
        };
        var request = StateQueryRequest.inStore(store.name()).withQuery(anyQuery);
        var result = streams.query(request).getPartitionResults().get(partition);
        // A key-value store with headers knows no such query (4.3.1), but says its position.
        Position position = result == null ? null : result.getPosition();
        if (position == null) {
            throw new IllegalStateException(store.name() + " " + partition + ": "
                + (result == null ? "no such partition here" : result.getFailureMessage()));
        }
        Map<String, Map<Integer, Long>> offsets = new TreeMap<>();
        for (String topic : position.getTopics()) {
            offsets.put(topic, new TreeMap<>(position.getPartitionPositions(topic)));
        }
        return offsets;
    }
}
