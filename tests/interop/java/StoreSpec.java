import java.time.Duration;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.DslStoreFormat;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;
import org.apache.kafka.streams.state.DslSessionParams;
import org.apache.kafka.streams.state.DslWindowParams;
import org.apache.kafka.streams.state.SessionBytesStoreSupplier;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowBytesStoreSupplier;

/** One store of the topology: logged, not cached, bytes in and bytes out. */
record StoreSpec(
        String name,
        Kind kind,
        Format format,
        Duration retention,
        Duration window,
        boolean duplicates,
        List<Bytes> keys) {

    enum Kind { KV, WINDOW, SESSION }

    /**
     * TIME_ORDERED is what the DSL makes for EmitStrategy.onWindowClose(), SLIDING the same with sliding windows (with
     * an index); HEADERS what it makes for dsl.store.format=HEADERS, ..._HEADERS for both. A versioned store's retention is
     * its history's. IN_MEMORY is a key-value store that is logged and never on disk. LISTS is the key-value store of an
     * outer join, whose keys and values have types of their own.
     */
    enum Format {
        PLAIN, TIMESTAMPED, TIME_ORDERED, SLIDING, HEADERS, TIME_ORDERED_HEADERS, SLIDING_HEADERS, VERSIONED, IN_MEMORY,
        LISTS
    }

    /**
     * Reads `name:kind:format:retention ms:window ms:duplicates`, such as `ts-kv:kv:timestamped:0:0:false`. A versioned
     * store, which nobody can list, may have `:key,...` behind it, in hexadecimal: these are asked for.
     */
    static StoreSpec parse(String text) {
        String[] parts = text.split(":");
        Kind kind = Kind.valueOf(parts[1].toUpperCase());
        Format format = Format.valueOf(parts[2].toUpperCase().replace('-', '_'));
        boolean exists = switch (kind) {
            case KV -> !format.name().startsWith("TIME_ORDERED") && !format.name().startsWith("SLIDING");
            case WINDOW -> format != Format.VERSIONED && format != Format.IN_MEMORY;
            case SESSION -> Set.of(
                Format.PLAIN, Format.TIME_ORDERED, Format.HEADERS, Format.TIME_ORDERED_HEADERS).contains(format);
        };
        if (!exists) {
            throw new IllegalArgumentException(text + ": Kafka Streams has no such store");
        }
        return new StoreSpec(
            parts[0],
            kind,
            format,
            Duration.ofMillis(Long.parseLong(parts[3])),
            Duration.ofMillis(Long.parseLong(parts[4])),
            Boolean.parseBoolean(parts[5]),
            parts.length < 7 ? List.of() : Arrays.stream(parts[6].split(","))
                .map(key -> Bytes.wrap(HexFormat.of().parseHex(key))).toList());
    }

    /** Whether it is one that Kafka Streams makes and names itself, for a join (see JoinTopology). */
    boolean generated() {
        return name.startsWith("KSTREAM-") || name.startsWith("KTABLE-");
    }

    /** Whether values come with a timestamp, and with nothing else. */
    boolean timestamped() {
        return format == Format.TIMESTAMPED
            || kind == Kind.WINDOW && (format == Format.TIME_ORDERED || format == Format.SLIDING);
    }

    /** Whether values come with headers. */
    boolean headers() {
        return format.name().endsWith("HEADERS");
    }

    StoreBuilder<?> builder(Map<String, String> changelogConfig) {
        StoreBuilder<?> builder = switch (kind) {
            case KV -> keyValueBuilder();
            case WINDOW -> windowBuilder();
            case SESSION -> sessionBuilder();
        };
        return builder.withCachingDisabled().withLoggingEnabled(changelogConfig);
    }

    private StoreBuilder<?> keyValueBuilder() {
        Serde<Bytes> keys = Serdes.Bytes();
        Serde<byte[]> values = Serdes.ByteArray();
        return switch (format) {
            case VERSIONED ->
                Stores.versionedKeyValueStoreBuilder(
                    Stores.persistentVersionedKeyValueStore(name, retention), keys, values);
            case IN_MEMORY -> Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore(name), keys, values);
            case HEADERS ->
                Stores.timestampedKeyValueStoreWithHeadersBuilder(
                    Stores.persistentTimestampedKeyValueStoreWithHeaders(name), keys, values);
            case TIMESTAMPED ->
                Stores.timestampedKeyValueStoreBuilder(Stores.persistentTimestampedKeyValueStore(name), keys, values);
            default -> Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore(name), keys, values);
        };
    }

    private StoreBuilder<?> windowBuilder() {
        Serde<Bytes> keys = Serdes.Bytes();
        Serde<byte[]> values = Serdes.ByteArray();
        WindowBytesStoreSupplier supplier = switch (format) {
            case TIME_ORDERED, SLIDING ->
                BuiltInDslStoreSuppliers.ROCKS_DB.windowStore(new DslWindowParams(
                    name, retention, window, duplicates, EmitStrategy.onWindowClose(), format == Format.SLIDING, true));
            case HEADERS -> Stores.persistentTimestampedWindowStoreWithHeaders(name, retention, window, duplicates);
            case TIME_ORDERED_HEADERS, SLIDING_HEADERS ->
                BuiltInDslStoreSuppliers.ROCKS_DB.windowStore(new DslWindowParams(
                    name, retention, window, duplicates, EmitStrategy.onWindowClose(),
                    format == Format.SLIDING_HEADERS, DslStoreFormat.HEADERS));
            case TIMESTAMPED -> Stores.persistentTimestampedWindowStore(name, retention, window, duplicates);
            default -> Stores.persistentWindowStore(name, retention, window, duplicates);
        };
        if (headers()) {
            return Stores.timestampedWindowStoreWithHeadersBuilder(supplier, keys, values);
        }
        return timestamped()
            ? Stores.timestampedWindowStoreBuilder(supplier, keys, values)
            : Stores.windowStoreBuilder(supplier, keys, values);
    }

    private StoreBuilder<?> sessionBuilder() {
        Serde<Bytes> keys = Serdes.Bytes();
        Serde<byte[]> values = Serdes.ByteArray();
        if (headers()) {
            return Stores.sessionStoreWithHeadersBuilder(
                format == Format.HEADERS
                    ? Stores.persistentSessionStoreWithHeaders(name, retention)
                    : BuiltInDslStoreSuppliers.ROCKS_DB.sessionStore(new DslSessionParams(
                        name, retention, EmitStrategy.onWindowClose(), DslStoreFormat.HEADERS)),
                keys, values);
        }
        SessionBytesStoreSupplier supplier = format == Format.TIME_ORDERED
            ? BuiltInDslStoreSuppliers.ROCKS_DB.sessionStore(
                new DslSessionParams(name, retention, EmitStrategy.onWindowClose()))
            : Stores.persistentSessionStore(name, retention);
        return Stores.sessionStoreBuilder(supplier, keys, values);
    }
}
