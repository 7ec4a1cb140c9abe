import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.Function;
import java.util.stream.Collectors;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.AggregationWithHeaders;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.SessionStoreWithHeaders;
import org.apache.kafka.streams.state.TimestampedKeyValueStore;
import org.apache.kafka.streams.state.TimestampedKeyValueStoreWithHeaders;
import org.apache.kafka.streams.state.TimestampedWindowStore;
import org.apache.kafka.streams.state.TimestampedWindowStoreWithHeaders;
import org.apache.kafka.streams.state.ValueAndTimestamp;
import org.apache.kafka.streams.state.ValueTimestampHeaders;
import org.apache.kafka.streams.state.VersionedKeyValueStore;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.state.internals.WrappedStateStore;

/**
 * Does to the stores what each input record says, in JSON; bytes are hexadecimal, times are milliseconds.
 *
 * <pre>{"op": "put" | "put_if_absent" | "delete" | "get" | "halt", "store": name, "key": hex,
 *  "value": hex or null, "value_timestamp": ms or null (then the record's), "start": ms, "end": ms, "unlogged": true}</pre>
 *
 * Windows have a start, sessions a start and an end. Key-value stores know all four operations; windows, sessions and
 * versioned stores put, delete and get; an unlogged value is put as it is stored, without the changelog; stores with headers keep those of the input record. What a get returns is
 * dropped: it is there for the migration that it causes. A halt ends the JVM in the middle of its transaction, as
 * SIGKILL does. If its value names a file, it does so only while there is this file, which it deletes.
 */
final class CommandProcessor implements Processor<byte[], byte[], Void, Void> {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final Map<String, StoreSpec> stores;
    private final Optional<Notes> notes;
    private ProcessorContext<Void, Void> context;

    CommandProcessor(List<StoreSpec> stores, Optional<Notes> notes) {
        this.notes = notes;
        this.stores = stores.stream().collect(Collectors.toMap(StoreSpec::name, Function.identity()));
    }

    @Override
    public void init(ProcessorContext<Void, Void> context) {
        this.context = context;
    }

    @Override
    public void process(Record<byte[], byte[]> record) {
        JsonNode command = read(record.value());
        StoreSpec store = stores.get(command.required("store").asText());
        if (store == null) {
            throw new IllegalArgumentException("no such store in this topology: " + command);
        }
        String op = command.required("op").asText();
        if (op.equals("halt")) {
            byte[] once = hex(command.path("value"));
            if (once == null || new File(new String(once, StandardCharsets.UTF_8)).delete()) {
                Runtime.getRuntime().halt(0);
            }
            return;
        }
        Bytes key = Bytes.wrap(hex(command.required("key")));
        if (command.path("unlogged").asBoolean()) {
            unlogged(context.getStateStore(store.name()), key, hex(command.path("value")), command.path("start").asLong(),
                command.path("end").asLong());
            return;
        }
        byte[] value = op.equals("delete") ? null : hex(command.path("value"));
        long timestamp = command.path("value_timestamp").asLong(record.timestamp());
        switch (store.kind()) {
            case KV -> {
                switch (store.format()) {
                    case VERSIONED -> {
                        VersionedKeyValueStore<Bytes, byte[]> versioned = context.getStateStore(store.name());
                        versioned(versioned, op, key, value, timestamp);
                    }
                    case HEADERS -> {
                        TimestampedKeyValueStoreWithHeaders<Bytes, byte[]> with = context.getStateStore(store.name());
                        keyValue(with, op, key, withHeaders(value, timestamp, record.headers()));
                    }
                    case TIMESTAMPED -> {
                        TimestampedKeyValueStore<Bytes, byte[]> timestamped = context.getStateStore(store.name());
                        keyValue(timestamped, op, key, ValueAndTimestamp.make(value, timestamp));
                    }
                    default -> {
                        KeyValueStore<Bytes, byte[]> plain = context.getStateStore(store.name());
                        keyValue(plain, op, key, value);
                    }
                }
            }
            case WINDOW -> {
                long start = command.required("start").asLong();
                if (store.headers()) {
                    TimestampedWindowStoreWithHeaders<Bytes, byte[]> with = context.getStateStore(store.name());
                    window(with, op, key, withHeaders(value, timestamp, record.headers()), start);
                } else if (store.timestamped()) {
                    TimestampedWindowStore<Bytes, byte[]> timestamped = context.getStateStore(store.name());
                    window(timestamped, op, key, ValueAndTimestamp.make(value, timestamp), start);
                } else {
                    WindowStore<Bytes, byte[]> plain = context.getStateStore(store.name());
                    window(plain, op, key, value, start);
                }
            }
            case SESSION -> {
                Windowed<Bytes> session = new Windowed<>(key, new SessionWindow(
                    command.required("start").asLong(), command.required("end").asLong()));
                if (store.headers()) {
                    SessionStoreWithHeaders<Bytes, byte[]> with = context.getStateStore(store.name());
                    session(with, op, session, value == null ? null : AggregationWithHeaders.make(value, record.headers()));
                } else {
                    SessionStore<Bytes, byte[]> plain = context.getStateStore(store.name());
                    session(plain, op, session, value);
                }
            }
        }
        long time = command.path(store.kind() == StoreSpec.Kind.SESSION ? "end" : "start").asLong();
        long offset = context.recordMetadata().orElseThrow().offset();
        notes.ifPresent(found -> found.note(offset, context.getStateStore(store.name()), time));
    }

    /** Put a value, as it is stored, into the store on disk that another one wraps: it does not come into the changelog. */
    @SuppressWarnings("unchecked")
    private static void unlogged(StateStore store, Bytes key, byte[] value, long start, long end) {
        StateStore found = store;
        while (!found.getClass().getSimpleName().startsWith("RocksDB")) {
            found = ((WrappedStateStore<?, ?, ?>) found).wrapped();
        }
        if (found instanceof WindowStore<?, ?> window) {
            ((WindowStore<Bytes, byte[]>) window).put(key, value, start);
        } else if (found instanceof SessionStore<?, ?> session) {
            ((SessionStore<Bytes, byte[]>) session).put(new Windowed<>(key, new SessionWindow(start, end)), value);
        } else {
            ((KeyValueStore<Bytes, byte[]>) found).put(key, value);
        }
    }

    private static ValueTimestampHeaders<byte[]> withHeaders(byte[] value, long timestamp, Headers headers) {
        return value == null ? null : ValueTimestampHeaders.make(value, timestamp, headers);
    }

    private static void versioned(
            VersionedKeyValueStore<Bytes, byte[]> store, String op, Bytes key, byte[] value, long timestamp) {
        switch (op) {
            case "put" -> store.put(key, value, timestamp);
            case "delete" -> store.delete(key, timestamp);
            case "get" -> store.get(key);
            default -> throw new IllegalArgumentException("no such operation on versioned stores: " + op);
        }
    }

    private static <V> void keyValue(KeyValueStore<Bytes, V> store, String op, Bytes key, V value) {
        switch (op) {
            case "put" -> store.put(key, value);
            case "put_if_absent" -> store.putIfAbsent(key, value);
            case "delete" -> store.delete(key);
            case "get" -> store.get(key);
            default -> throw new IllegalArgumentException("no such operation: " + op);
        }
    }

    private static <V> void window(WindowStore<Bytes, V> store, String op, Bytes key, V value, long start) {
        switch (op) {
            case "put", "delete" -> store.put(key, value, start);
            case "get" -> store.fetch(key, start);
            default -> throw new IllegalArgumentException("no such operation on windows: " + op);
        }
    }

    private static <V> void session(SessionStore<Bytes, V> store, String op, Windowed<Bytes> session, V value) {
        switch (op) {
            case "put" -> store.put(session, value);
            case "delete" -> store.remove(session);
            case "get" -> store.fetchSession(session.key(), session.window().start(), session.window().end());
            default -> throw new IllegalArgumentException("no such operation on sessions: " + op);
        }
    }

    private static JsonNode read(byte[] value) {
        try {
            return JSON.readTree(value);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static byte[] hex(JsonNode node) {
        return node.isTextual() ? HexFormat.of().parseHex(node.asText()) : null;
    }
}
