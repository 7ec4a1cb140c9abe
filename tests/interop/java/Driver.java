import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Callable;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;

/**
 * Runs a Kafka Streams application that writes what its input tells, or reads its stores back.
 *
 * <ul>
 * <li>`write`: processes the input to its end, commits, reports what was restored, and closes.
 * <li>`crash`: the same, but the JVM halts instead of closing.
 * <li>`read`: starts on the state directory, reports what was restored and every row of every store, and closes.
 * </ul>
 *
 * Flags: --bootstrap-servers, --application, --state-dir, --input, --output, --timeout-s; repeated: --store (see
 * StoreSpec), --config and --changelog-config (name=value). Everything is one thread, one sub-topology, exactly once.
 */
public final class Driver implements AutoCloseable {
    private static final long POLL_MS = 20;

    private final List<StoreSpec> stores;
    private final KafkaAdmin admin;
    private final KafkaStreams streams;
    private final Restored restored = new Restored();
    private final AtomicReference<Throwable> failure = new AtomicReference<>();
    private final long deadline;

    private Driver(Flags flags) {
        String servers = flags.one("--bootstrap-servers");
        String input = flags.one("--input");
        String application = flags.one("--application");
        stores = flags.all("--store").stream().map(StoreSpec::parse).toList();
        deadline = System.nanoTime() + Duration.ofSeconds(Long.parseLong(flags.one("--timeout-s"))).toNanos();
        admin = new KafkaAdmin(servers, input, application);

        Topology topology = new Topology();
        topology.addSource("input", input);
        topology.addProcessor("commands", () -> new CommandProcessor(stores), "input");
        for (StoreSpec store : stores) {
            topology.addStateStore(store.builder(flags.settings("--changelog-config")), "commands");
        }
        Properties config = new Properties();
        config.putAll(Map.of(
            StreamsConfig.APPLICATION_ID_CONFIG, application,
            StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, servers,
            StreamsConfig.STATE_DIR_CONFIG, flags.one("--state-dir"),
            StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2,
            StreamsConfig.NUM_STREAM_THREADS_CONFIG, 1,
            StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100,
            StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.ByteArraySerde.class,
            StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.ByteArraySerde.class,
            StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest",
            StreamsConfig.ENABLE_METRICS_PUSH_CONFIG, false));
        config.put(StreamsConfig.consumerPrefix("fetch.max.wait.ms"), 50);  // tests wait for the end of the log
        config.putAll(flags.settings("--config"));
        streams = new KafkaStreams(topology, config);
        streams.setGlobalStateRestoreListener(restored);
        streams.setUncaughtExceptionHandler(error -> {
            failure.set(error);
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
    }

    private void run(String command, Output output) throws Exception {
        int partitions = admin.partitions();
        admin.forgetDeadMembers();
        streams.start();
        await("every task to run", () -> streams.state() == KafkaStreams.State.RUNNING
            && streams.metadataForLocalThreads().stream()
                .mapToInt(thread -> thread.activeTasks().size()).sum() == partitions);
        if (!command.equals("read")) {
            var ends = admin.inputEnds(partitions);
            await("the input to be processed and committed", () -> admin.hasCommitted(ends));
        }
        Contents contents = new Contents(streams, output);
        for (StoreSpec store : stores) {
            for (int partition = 0; partition < partitions; partition++) {
                long records = restored.records(store.name(), partition);
                output.line("restored", store.name(), partition, Map.of("records", records));
                if (command.equals("read")) {
                    contents.report(store, partition);
                }
            }
        }
    }

    private void await(String what, Callable<Boolean> condition) throws Exception {
        while (!condition.call()) {
            if (failure.get() != null) {
                throw new IllegalStateException("waited for " + what + ", but Kafka Streams failed", failure.get());
            }
            if (System.nanoTime() > deadline) {
                throw new TimeoutException("waited for " + what + "; Kafka Streams is " + streams.state());
            }
            Thread.sleep(POLL_MS);
        }
    }

    @Override
    public void close() {
        // Leaving the group lets the next run start at once.
        boolean closed = streams.close(CloseOptions
            .groupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP)
            .withTimeout(Duration.ofSeconds(30)));
        admin.close();
        if (!closed || failure.get() != null) {
            throw new IllegalStateException("Kafka Streams did not close cleanly", failure.get());
        }
    }

    public static void main(String[] args) throws Exception {
        Flags flags = Flags.parse(args);
        if (!List.of("write", "crash", "read").contains(flags.command())) {
            throw new IllegalArgumentException("no such command: " + flags.command());
        }
        try (Driver driver = new Driver(flags)) {
            try (Output output = new Output(Path.of(flags.one("--output")))) {
                driver.run(flags.command(), output);
            }
            if (flags.command().equals("crash")) {
                Runtime.getRuntime().halt(0);
            }
        }
    }
}
