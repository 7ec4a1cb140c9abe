import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import java.util.stream.Collectors;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.TimestampedKeyValueStore;
import org.apache.kafka.streams.state.TimestampedWindowStore;
import org.apache.kafka.streams.state.ValueAndTimestamp;
import org.apache.kafka.streams.state.WindowStore;

/**
 * Does to the stores what each input record says, in JSON; bytes are hexadecimal, times are milliseconds.
 *
 * <pre>{"op": "put" | "put_if_absent" | "delete" | "get" | "halt", "store": name, "key": hex,
 *  "value": hex or null, "value_timestamp": ms or null (then the record's), "start": ms, "end": ms}</pre>
 *
 * Windows have a start, sessions a start and an end. Key-value stores know all four operations; windows and sessions
 * put, delete and get. What a get returns is dropped: it is there for the migration that it causes. A halt ends the JVM
 * in the middle of its transaction, as SIGKILL does.
 */
final class CommandProcessor implements Processor<byte[], byte[], Void, Void> {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final Map<String, StoreSpec> stores;
    private ProcessorContext<Void, Void> context;

    CommandProcessor(List<StoreSpec> stores) {
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
            Runtime.getRuntime().halt(0);
        }
        Bytes key = Bytes.wrap(hex(command.required("key")));
        byte[] value = op.equals("delete") ? null : hex(command.path("value"));
        long timestamp = command.path("value_timestamp").asLong(record.timestamp());
        switch (store.kind()) {
            case KV -> {
                if (store.timestamped()) {
                    TimestampedKeyValueStore<Bytes, byte[]> timestamped = context.getStateStore(store.name());
                    keyValue(timestamped, op, key, ValueAndTimestamp.make(value, timestamp));
                } else {
                    KeyValueStore<Bytes, byte[]> plain = context.getStateStore(store.name());
                    keyValue(plain, op, key, value);
                }
            }
            case WINDOW -> {
                long start = command.required("start").asLong();
                if (store.timestamped()) {
                    TimestampedWindowStore<Bytes, byte[]> timestamped = context.getStateStore(store.name());
                    window(timestamped, op, key, ValueAndTimestamp.make(value, timestamp), start);
                } else {
                    WindowStore<Bytes, byte[]> plain = context.getStateStore(store.name());
                    window(plain, op, key, value, start);
                }
            }
            case SESSION -> {
                SessionStore<Bytes, byte[]> sessions = context.getStateStore(store.name());
                long start = command.required("start").asLong();
                session(sessions, op, key, value, start, command.required("end").asLong());
            }
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

    private static void session(
            SessionStore<Bytes, byte[]> store, String op, Bytes key, byte[] value, long start, long end) {
        Windowed<Bytes> session = new Windowed<>(key, new SessionWindow(start, end));
        switch (op) {
            case "put" -> store.put(session, value);
            case "delete" -> store.remove(session);
            case "get" -> store.fetchSession(key, start, end);
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
