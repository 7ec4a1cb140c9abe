import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.streams.processor.StateRestoreListener;

/** How many changelog records each store partition had to restore; 0 where Kafka Streams restored nothing. */
final class Restored implements StateRestoreListener {
    private record StorePartition(String store, int partition) {}

    private final Map<StorePartition, Long> records = new HashMap<>();

    synchronized long records(String store, int partition) {
        return records.getOrDefault(new StorePartition(store, partition), 0L);
    }

    synchronized long ofAllPartitions(String store) {
        return records.entrySet().stream()
            .filter(entry -> entry.getKey().store().equals(store)).mapToLong(Map.Entry::getValue).sum();
    }

    @Override
    public void onRestoreStart(TopicPartition changelog, String store, long startingOffset, long endingOffset) {}

    @Override
    public synchronized void onBatchRestored(TopicPartition changelog, String store, long endOffset, long count) {
        records.merge(new StorePartition(store, changelog.partition()), count, Long::sum);
    }

    @Override
    public void onRestoreEnd(TopicPartition changelog, String store, long total) {}
}
