import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.Callable;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * Runs a Kafka Streams application that writes what its input tells, or reads its stores back.
 *
 * <ul>
 * <li>`write`: processes the input to its end, commits, reports what was restored, and closes.
 * <li>`crash`: the same, but the JVM halts instead of closing.
 * <li>`read`: the same as `write`, and reports every row of every store.
 * </ul>
 *
 * Flags: --bootstrap-servers, --application, --state-dir, --input, --output, --timeout-s; repeated: --store (see
 * StoreSpec), --config and --changelog-config (name=value), --table, --global-table and --global-processor (store=topic;
 * see GlobalStores); --dsl twice, the topics of a stream and of a table (see DslTopology); --join twice, the topics of two
 * streams (see JoinTopology). --as-of says times at which versioned stores are asked. Everything is one thread, exactly once, and without tables and
 * streams one sub-topology; a table's changelog is its topic. With --while FILE it
 * writes that file when its work is done, runs on until somebody deletes the file, and has then processed all input. With
 * --notes FILE it notes sequence numbers (see Notes). With --joins true, other instances run, too: it waits for no input.
 */
public final class Driver implements AutoCloseable {
    private static final long POLL_MS = 20;

    private final List<StoreSpec> stores;
    private final List<String> topics = new ArrayList<>();
    private final List<String> joined;
    private final List<String> globals = new ArrayList<>();
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
        Map<String, String> tables = flags.settings("--table");
        topics.add(input);
        topics.addAll(tables.values());
        admin = new KafkaAdmin(servers, application);

        globals.addAll(flags.settings("--global-table").keySet());
        globals.addAll(flags.settings("--global-processor").keySet());
        if (!flags.all("--dsl").isEmpty()) {
            topics.add(flags.all("--dsl").get(0));
        }
        joined = flags.all("--join");
        Topology topology = topology(flags);
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

    /** The topology of a run whose flags are in the property `flags`, one a line: for `java/StoreShapes.java`. */
    static Topology topology(Properties properties) {
        return topology(Flags.parse(properties.getProperty("flags").split("\n")));
    }

    private static Topology topology(Flags flags) {
        List<StoreSpec> stores = flags.all("--store").stream().map(StoreSpec::parse).toList();
        StreamsBuilder builder = new StreamsBuilder();
        flags.settings("--table").forEach((name, topic) -> builder.table(topic, bytes(), stored(name)));
        flags.settings("--global-table").forEach((name, topic) -> builder.globalTable(topic, bytes(), stored(name)));
        flags.settings("--global-processor").forEach((name, topic) -> GlobalStores.process(builder, name, topic));
        List<String> dsl = flags.all("--dsl");
        if (!dsl.isEmpty()) {
            DslTopology.add(builder, dsl.get(0), dsl.get(1));
        }
        List<String> join = flags.all("--join");
        if (!join.isEmpty()) {
            JoinTopology.add(builder, join.get(0), join.get(1));
        }
        Properties optimized = new Properties();
        optimized.put(StreamsConfig.TOPOLOGY_OPTIMIZATION_CONFIG, StreamsConfig.REUSE_KTABLE_SOURCE_TOPICS);
        Topology topology = builder.build(optimized);
        topology.addSource("input", flags.one("--input"));
        Optional<Notes> notes = flags.all("--notes").stream().findFirst().map(path -> new Notes(Path.of(path)));
        topology.addProcessor("commands", () -> new CommandProcessor(stores, notes), "input");
        stores.stream().filter(store -> !store.generated()).forEach(store ->
            topology.addStateStore(store.builder(flags.settings("--changelog-config")), "commands"));
        return topology;
    }

    private static Consumed<Bytes, byte[]> bytes() {
        return Consumed.with(Serdes.Bytes(), Serdes.ByteArray());
    }

    private static Materialized<Bytes, byte[], KeyValueStore<Bytes, byte[]>> stored(String name) {
        return Materialized.<Bytes, byte[], KeyValueStore<Bytes, byte[]>>as(name)
            .withKeySerde(Serdes.Bytes()).withValueSerde(Serdes.ByteArray()).withCachingDisabled();
    }

    private void run(Flags flags, Output output) throws Exception {
        String command = flags.command();
        int partitions = admin.partitions(topics.get(0));
        int tasks = 0;
        for (String topic : topics) {
            tasks += admin.partitions(topic);
        }
        tasks += joined.isEmpty() ? 0 : admin.partitions(joined.get(0));
        int expected = tasks;
        boolean joins = !flags.all("--joins").isEmpty();
        if (!joins) {
            admin.forgetDeadMembers();
        }
        streams.start();
        await("every task to run", () -> streams.state() == KafkaStreams.State.RUNNING && (joins
            || streams.metadataForLocalThreads().stream()
                .mapToInt(thread -> thread.activeTasks().size()).sum() == expected));
        if (joins) {
            return;
        }
        process();
        for (String store : globals) {
            GlobalStores.report(streams, store, restored.ofAllPartitions(store), output);
        }
        Contents contents = new Contents(streams, output);
        for (StoreSpec store : stores) {
            for (int partition = 0; partition < partitions; partition++) {
                long records = restored.records(store.name(), partition);
                output.line("restored", store.name(), partition, Map.of("records", records));
                // Started anew, Kafka Streams knows no segment of a versioned store before it has written to it.
                if (command.equals("read") || (command.equals("write") && !store.keys().isEmpty())) {
                    contents.report(store, partition);
                    for (String time : flags.all("--as-of")) {
                        contents.versionsAsOf(store, partition, Long.parseLong(time));
                    }
                }
            }
        }
    }

    private void process() throws Exception {
        List<String> input = new ArrayList<>(topics);
        input.addAll(joined);
        var ends = admin.ends(input);
        await("the input to be processed and committed", () -> admin.hasCommitted(ends));
        await("tables to have asked and answered each other", admin::hasCommittedForeignKeyJoins);
    }

    private void runOn(Path file, Flags flags) throws Exception {
        Files.createFile(file);
        await(file + " to be deleted", () -> Files.notExists(file));
        if (flags.all("--joins").isEmpty()) {
            process();
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
        Duration timeout = Duration.ofSeconds(30);
        boolean closed;
        try {
            // Leaving the group lets the next run start at once.
            closed = streams.close(CloseOptions
                .groupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP)
                .withTimeout(timeout));
        } catch (NoClassDefFoundError olderVersion) {
            closed = streams.close(timeout);
        }
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
                driver.run(flags, output);
            }
            for (String file : flags.all("--while")) {
                driver.runOn(Path.of(file), flags);
            }
            if (flags.command().equals("crash")) {
                Runtime.getRuntime().halt(0);
            }
        }
    }
}
