import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.reflect.Field;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Map;
import java.util.Objects;
import java.util.WeakHashMap;
import java.util.zip.CRC32;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.state.internals.WrappedStateStore;
import org.rocksdb.RocksDB;

/**
 * Notes for each command: its offset in the input, a checksum of the identity of the database that it was for, and the
 * database's sequence number. These are 24 bytes in a file, also if the process is killed after that. The sequence number
 * is -1 if there is no such database, as of an expired window.
 *
 * <p>With the sequence numbers in the files of the database, this shows which commands are on disk.
 */
final class Notes {
    private static final long NONE = -1;

    private final FileChannel file;
    private final Map<RocksDB, Long> identities = new WeakHashMap<>();
    private final ByteBuffer buffer = ByteBuffer.allocate(3 * Long.BYTES);

    Notes(Path path) {
        try {
            file = FileChannel.open(path, StandardOpenOption.CREATE, StandardOpenOption.WRITE, StandardOpenOption.APPEND);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** Note the sequence number of a store's database after a command, which is for a time if the store has segments. */
    void note(long offset, StateStore store, long time) {
        RocksDB database = database(store, time);
        long identity = database == null ? NONE : identities.computeIfAbsent(database, Notes::identity);
        long sequence = database == null ? NONE : database.getLatestSequenceNumber();
        buffer.clear().putLong(offset).putLong(identity).putLong(sequence).flip();
        try {
            file.write(buffer);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static long identity(RocksDB database) {
        CRC32 checksum = new CRC32();
        try {
            checksum.update(Files.readAllBytes(Path.of(database.getName(), "IDENTITY")));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        return checksum.getValue();
    }

    private static RocksDB database(StateStore store, long time) {
        Object found = store;
        for (Object inner = store; inner != null; inner = inner(found)) {
            found = inner;
        }
        Object segments = field(found, "segments");
        Object versions = field(found, "segmentStores");
        if (segments != null) {
            long interval = (Long) field(segments, "segmentInterval");
            found = ((Map<?, ?>) field(segments, "segments")).get(time / interval);
        } else if (versions != null) {
            found = field(versions, "physicalStore");
        }
        return found == null ? null : (RocksDB) Objects.requireNonNull(field(found, "db"), "the store has no database");
    }

    /** The store that a store wraps, or null if it wraps none. */
    private static Object inner(Object store) {
        return store instanceof WrappedStateStore<?, ?, ?> wrapper ? wrapper.wrapped() : field(store, "inner");
    }

    /** The value of a field, or null if there is no such field. */
    private static Object field(Object of, String name) {
        for (Class<?> type = of.getClass(); type != null; type = type.getSuperclass()) {
            try {
                Field field = type.getDeclaredField(name);
                field.setAccessible(true);
                return field.get(of);
            } catch (NoSuchFieldException error) {
                continue;
            } catch (IllegalAccessException error) {
                throw new IllegalStateException(error);
            }
        }
        return null;
    }
}
