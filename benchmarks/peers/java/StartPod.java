import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.time.Duration;
import java.util.Arrays;
import java.util.Locale;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
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
import org.apache.kafka.streams.state.Stores;

/**
 * One instance of an application with one key-value store: starts, and says how far it is, until it is ended (SIGTERM).
 *
 * <p>Arguments: input topic, store name, status file, and settings of Kafka Streams as name=value. The file has, as
 * JSON: whether the instance is RUNNING, since when (seconds since the epoch, as `began`, the start of the JVM), the
 * partitions of its active tasks, and how many records it has restored.
 */
public final class StartPod {
    private static final long POLL_MS = 10;
    private static final long CLOSE_S = 120;

    public static void main(String[] args) throws Exception {
        Path status = Path.of(args[2]);
        Properties config = new Properties();
        for (String setting : Arrays.asList(args).subList(3, args.length)) {
            String[] parts = setting.split("=", 2);
            config.put(parts[0], parts[1]);
        }
        StreamsBuilder builder = new StreamsBuilder();
        builder.addStateStore(Stores.keyValueStoreBuilder(
            Stores.persistentKeyValueStore(args[1]), Serdes.ByteArray(), Serdes.ByteArray()));
        builder.stream(args[0], Consumed.with(Serdes.ByteArray(), Serdes.ByteArray()))
            .process(Nothing::new, args[1]);

        KafkaStreams streams = new KafkaStreams(builder.build(), config);
        Restored restored = new Restored();
        streams.setGlobalStateRestoreListener(restored);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            // The next run has the same name; a member that stayed would have it wait until its session is over.
            CloseOptions leave = CloseOptions.timeout(Duration.ofSeconds(CLOSE_S))
                .withGroupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP);
            if (!streams.close(leave)) {
                System.err.println("not closed within " + CLOSE_S + " s");
                Runtime.getRuntime().halt(1);
            }
            Runtime.getRuntime().halt(0);
        }));
        streams.start();
        double began = ManagementFactory.getRuntimeMXBean().getStartTime() / 1e3;
        String written = "";
        while (true) {
            boolean running = streams.state() == KafkaStreams.State.RUNNING;
            Set<Integer> tasks = new TreeSet<>();
            streams.metadataForLocalThreads().forEach(
                thread -> thread.activeTasks().forEach(task -> tasks.add(task.taskId().partition())));
            String found = String.format(Locale.ROOT, "\"running\": %b, \"tasks\": %s, \"restored\": %d",
                running, tasks, restored.records.get());
            if (!found.equals(written)) {
                written = found;
                write(status, String.format(Locale.ROOT, "{%s, \"began\": %.3f, \"since\": %.3f}",
                    found, began, System.currentTimeMillis() / 1e3));
            }
            Thread.sleep(POLL_MS);
        }
    }

    /** Write whole: it is read at any time. */
    private static void write(Path file, String text) throws IOException {
        Path part = file.resolveSibling(file.getFileName() + ".part");
        Files.writeString(part, text);
        Files.move(part, file, StandardCopyOption.ATOMIC_MOVE);
    }

    /** Has the store; there is no input. */
    private static final class Nothing implements Processor<byte[], byte[], Void, Void> {
        @Override
        public void process(Record<byte[], byte[]> record) {
        }
    }

    /** Counts the records that are restored. */
    private static final class Restored implements StateRestoreListener {
        final AtomicLong records = new AtomicLong();

        @Override
        public void onRestoreStart(TopicPartition partition, String store, long start, long end) {
        }

        @Override
        public void onBatchRestored(TopicPartition partition, String store, long offset, long restored) {
            records.addAndGet(restored);
        }

        @Override
        public void onRestoreEnd(TopicPartition partition, String store, long total) {
        }
    }
}
