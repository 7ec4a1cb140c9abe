import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.io.Writer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.kstream.Window;

/** What a run found out, one JSON object a line; each has a `type`, a `store` and a `partition`. */
final class Output implements AutoCloseable {
    private final ObjectMapper json = new ObjectMapper();
    private final Writer writer;

    Output(Path path) throws IOException {
        writer = Files.newBufferedWriter(path);
    }

    /** Times are null where the store has none. */
    void row(String store, int partition, Bytes key, Window window, byte[] value, Long timestamp) {
        row(store, partition, key, window, value, timestamp, new RecordHeaders());
    }

    /** A row of a store with headers. */
    void row(
            String store, int partition, Bytes key, Window window, byte[] value, Long timestamp, Headers headers) {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("key", hex(key.get()));
        fields.put("start", window == null ? null : window.start());
        fields.put("end", window == null ? null : window.end());
        fields.put("value", hex(value));
        fields.put("timestamp", timestamp);
        fields.put("headers", Arrays.stream(headers.toArray())
            .map(header -> Arrays.asList(header.key(), hex(header.value()))).toList());
        line("row", store, partition, fields);
    }

    private static String hex(byte[] value) {
        return value == null ? null : HexFormat.of().formatHex(value);
    }

    void line(String type, String store, int partition, Map<String, ?> fields) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("type", type);
        line.put("store", store);
        line.put("partition", partition);
        line.putAll(fields);
        try {
            writer.write(json.writeValueAsString(line) + "\n");
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    @Override
    public void close() throws IOException {
        writer.close();
    }
}
