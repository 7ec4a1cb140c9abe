import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.io.Writer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.Map;
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
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("key", HexFormat.of().formatHex(key.get()));
        fields.put("start", window == null ? null : window.start());
        fields.put("end", window == null ? null : window.end());
        fields.put("value", HexFormat.of().formatHex(value));
        fields.put("timestamp", timestamp);
        line("row", store, partition, fields);
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
