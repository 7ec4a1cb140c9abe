import java.time.Duration;
import java.util.Map;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;

/** One store of the topology: logged, not cached, bytes in and bytes out. */
record StoreSpec(
    String name, Kind kind, boolean timestamped, Duration retention, Duration window, boolean duplicates) {

    enum Kind { KV, WINDOW, SESSION }

    /** Reads `name:kind:format:retention ms:window ms:duplicates`, such as `ts-kv:kv:timestamped:0:0:false`. */
    static StoreSpec parse(String text) {
        String[] parts = text.split(":");
        Kind kind = Kind.valueOf(parts[1].toUpperCase());
        boolean timestamped = switch (parts[2]) {
            case "timestamped" -> true;
            case "plain" -> false;
            default -> throw new IllegalArgumentException(text + ": expected plain or timestamped, found " + parts[2]);
        };
        if (timestamped && kind == Kind.SESSION) {
            throw new IllegalArgumentException(text + ": Kafka Streams has no timestamped session store");
        }
        return new StoreSpec(
            parts[0],
            kind,
            timestamped,
            Duration.ofMillis(Long.parseLong(parts[3])),
            Duration.ofMillis(Long.parseLong(parts[4])),
            Boolean.parseBoolean(parts[5]));
    }

    StoreBuilder<?> builder(Map<String, String> changelogConfig) {
        Serde<Bytes> keys = Serdes.Bytes();
        Serde<byte[]> values = Serdes.ByteArray();
        StoreBuilder<?> builder = switch (kind) {
            case KV -> timestamped
                ? Stores.timestampedKeyValueStoreBuilder(Stores.persistentTimestampedKeyValueStore(name), keys, values)
                : Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore(name), keys, values);
            case WINDOW -> timestamped
                ? Stores.timestampedWindowStoreBuilder(
                    Stores.persistentTimestampedWindowStore(name, retention, window, duplicates), keys, values)
                : Stores.windowStoreBuilder(
                    Stores.persistentWindowStore(name, retention, window, duplicates), keys, values);
            case SESSION -> Stores.sessionStoreBuilder(Stores.persistentSessionStore(name, retention), keys, values);
        };
        return builder.withCachingDisabled().withLoggingEnabled(changelogConfig);
    }
}
