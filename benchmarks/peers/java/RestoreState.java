import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;

/**
 * Restores a store from its changelog into an empty state directory, then closes.
 *
 * <p>Arguments: input topic, its partitions, file for the result, store name, "key-value" or
 * "window:RETENTION_MS:WINDOW_MS", and settings of Kafka Streams as name=value.
 */
public final class RestoreState {
    private static final long RESTORE_S = 600;
    private static final long CLOSE_S = 120;

    public static void main(String[] args) throws Exception {
        int partitions = Integer.parseInt(args[1]);
        Path result = Path.of(args[2]);
        String store = args[3];
        Properties config = new Properties();
        for (String setting : Arrays.asList(args).subList(5, args.length)) {
            String[] parts = setting.split("=", 2);
            config.put(parts[0], parts[1]);
        }
        StreamsBuilder builder = new StreamsBuilder();
        builder.addStateStore(storeBuilder(store, args[4]));
        builder.stream(args[0], Consumed.with(Serdes.ByteArray(), Serdes.ByteArray()))
            .process(Nothing::new, store);

        KafkaStreams streams = new KafkaStreams(builder.build(), config);
        Restoring restoring = new Restoring(partitions);
        streams.setGlobalStateRestoreListener(restoring);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        if (!restoring.left.await(RESTORE_S, TimeUnit.SECONDS)) {
            throw new IllegalStateException("not restored within " + RESTORE_S + " s");
        }
        // The time between the last restored record and this close is not the system's.
        long closing = System.nanoTime();
        // The next run has the same name; a member that stayed would have it wait until its session is over.
        CloseOptions leave = CloseOptions.timeout(Duration.ofSeconds(CLOSE_S))
            .withGroupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP);
        if (!streams.close(leave)) {
            throw new IllegalStateException("not closed within " + CLOSE_S + " s");
        }
        double closeSeconds = (System.nanoTime() - closing) / 1e9;
        double seconds = (restoring.ended.get() - restoring.started.get()) / 1e9;
        Files.writeString(result, String.format(Locale.ROOT,
            "{\"records\": %d, \"seconds\": %.6f, \"closed_seconds\": %.6f, \"peak_kib\": %d}",
            restoring.records.get(), seconds, seconds + closeSeconds, peakKib()));
    }

    private static StoreBuilder<?> storeBuilder(String name, String kind) {
        String[] parts = kind.split(":");
        if (parts[0].equals("key-value")) {
            return Stores.keyValueStoreBuilder(
                Stores.persistentKeyValueStore(name), Serdes.ByteArray(), Serdes.ByteArray());
        }
        Duration retention = Duration.ofMillis(Long.parseLong(parts[1]));
        Duration size = Duration.ofMillis(Long.parseLong(parts[2]));
        return Stores.windowStoreBuilder(
            Stores.persistentWindowStore(name, retention, size, false), Serdes.ByteArray(), Serdes.ByteArray());
    }

    /** Largest resident memory of this process so far. */
    private static long peakKib() throws IOException {
        List<String> lines = Files.readAllLines(Path.of("/proc/self/status"));
        String line = lines.stream().filter(found -> found.startsWith("VmHWM:")).findFirst().orElseThrow();
        return Long.parseLong(line.replaceAll("\\D", ""));
    }

    /** Has the store; there is no input. */
    private static final class Nothing implements Processor<byte[], byte[], Void, Void> {
        @Override
        public void process(Record<byte[], byte[]> record) {
        }
    }

    /** Takes the time from the first store's start to the last one's end, and counts. */
    private static final class Restoring implements StateRestoreListener {
        final CountDownLatch left;
        final AtomicLong started = new AtomicLong();
        final AtomicLong ended = new AtomicLong();
        final AtomicLong records = new AtomicLong();

        Restoring(int partitions) {
            left = new CountDownLatch(partitions);
        }

        @Override
        public void onRestoreStart(TopicPartition partition, String store, long start, long end) {
            started.compareAndSet(0, System.nanoTime());
        }

        @Override
        public void onBatchRestored(TopicPartition partition, String store, long offset, long restored) {
            records.addAndGet(restored);
        }

        @Override
        public void onRestoreEnd(TopicPartition partition, String store, long total) {
            ended.accumulateAndGet(System.nanoTime(), Math::max);
            left.countDown();
        }
    }
}
