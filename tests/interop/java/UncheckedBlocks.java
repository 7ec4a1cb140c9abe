import java.util.Map;
import org.apache.kafka.streams.state.RocksDBConfigSetter;
import org.rocksdb.BlockBasedTableConfig;
import org.rocksdb.ChecksumType;
import org.rocksdb.Options;

/** As SmallMemtables, and RocksDB does not notice a changed byte. */
public final class UncheckedBlocks implements RocksDBConfigSetter {
    @Override
    public void setConfig(String store, Options options, Map<String, Object> configs) {
        options.setWriteBufferSize(64 * 1024);
        options.setTableFormatConfig(
            ((BlockBasedTableConfig) options.tableFormatConfig()).setChecksumType(ChecksumType.kNoChecksum));
    }

    @Override
    public void close(String store, Options options) {
    }
}
