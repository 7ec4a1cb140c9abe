import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;

/**
 * Counts records by key, then closes, which commits: nobody waits for a commit interval to run out.
 *
 * <p>Arguments: input topic, records to process, file for the time of RUNNING (seconds since the epoch), and settings
 * of Kafka Streams as name=value.
 */
public final class CountByKey {
    private static final long POLL_MS = 5;

    public static void main(String[] args) throws Exception {
        long records = Long.parseLong(args[1]);
        Path started = Path.of(args[2]);
        Properties config = new Properties();
        for (String setting : Arrays.asList(args).subList(3, args.length)) {
            String[] parts = setting.split("=", 2);
            config.put(parts[0], parts[1]);
        }
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(args[0], Consumed.with(Serdes.ByteArray(), Serdes.ByteArray()))
            .groupByKey(Grouped.with(Serdes.ByteArray(), Serdes.ByteArray()))
            .count(Materialized.as("counts"));

        KafkaStreams streams = new KafkaStreams(builder.build(), config);
        CountDownLatch running = new CountDownLatch(1);
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.RUNNING && running.getCount() > 0) {
                write(started);
                running.countDown();
            }
        });
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        running.await();
        List<? extends Metric> processed = streams.metrics().values().stream()
            .filter(metric -> metric.metricName().group().equals("stream-thread-metrics")
                && metric.metricName().name().equals("process-total"))
            .toList();
        while (processed.stream().mapToDouble(metric -> (double) metric.metricValue()).sum() < records) {
            Thread.sleep(POLL_MS);
        }
        if (!streams.close(Duration.ofSeconds(60))) {
            throw new IllegalStateException("Kafka Streams did not close within 60 s");
        }
    }

    private static void write(Path file) {
        try {
            Files.writeString(file, Double.toString(System.currentTimeMillis() / 1000.0));
        } catch (java.io.IOException error) {
            throw new java.io.UncheckedIOException(error);
        }
    }
}
