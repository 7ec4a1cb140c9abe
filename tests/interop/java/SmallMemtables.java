import java.util.Map;
import org.apache.kafka.streams.state.RocksDBConfigSetter;
import org.rocksdb.Options;

/** Has RocksDB write to disk after few rows, as it does by itself after many. */
public final class SmallMemtables implements RocksDBConfigSetter {
    @Override
    public void setConfig(String store, Options options, Map<String, Object> configs) {
        options.setWriteBufferSize(64 * 1024);
    }

    @Override
    public void close(String store, Options options) {
    }
}
