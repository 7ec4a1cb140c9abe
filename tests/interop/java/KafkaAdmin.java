import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.GroupIdNotFoundException;

/** What the driver asks Kafka about its input topics and the application's consumer group. */
final class KafkaAdmin implements AutoCloseable {
    private final Admin admin;
    private final String group;

    KafkaAdmin(String bootstrapServers, String group) {
        admin = Admin.create(Map.of("bootstrap.servers", bootstrapServers));
        this.group = group;
    }

    int partitions(String topic) throws Exception {
        return admin.describeTopics(List.of(topic)).topicNameValues().get(topic).get().partitions().size();
    }

    Map<TopicPartition, Long> ends(List<String> topics) throws Exception {
        Map<TopicPartition, OffsetSpec> asked = new HashMap<>();
        for (String topic : topics) {
            for (int partition = 0; partition < partitions(topic); partition++) {
                asked.put(new TopicPartition(topic, partition), OffsetSpec.latest());
            }
        }
        Map<TopicPartition, Long> ends = new HashMap<>();
        admin.listOffsets(asked).all().get().forEach((partition, found) -> ends.put(partition, found.offset()));
        return ends;
    }

    boolean hasCommitted(Map<TopicPartition, Long> ends) throws Exception {
        var committed = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
        return ends.entrySet().stream().allMatch(end -> {
            var found = committed.get(end.getKey());
            // An empty partition is never committed.
            return end.getValue() == 0 || (found != null && found.offset() >= end.getValue());
        });
    }

    /** Whether all is processed by which the two sides of foreign-key joins ask and answer each other. */
    boolean hasCommittedForeignKeyJoins() throws Exception {
        List<String> topics = admin.listTopics().names().get().stream()
            .filter(topic -> topic.startsWith(group + "-KTABLE-FK-JOIN-") && topic.endsWith("-topic")).toList();
        var ends = ends(topics);
        return hasCommitted(ends) && ends.equals(ends(topics));  // what was processed meanwhile may have asked more
    }

    /** Lets a run start at once although an earlier one was killed: the group would wait for it until it times out. */
    void forgetDeadMembers() throws Exception {
        try {
            if (!admin.describeConsumerGroups(List.of(group)).describedGroups().get(group).get().members().isEmpty()) {
                admin.removeMembersFromConsumerGroup(group, new RemoveMembersFromConsumerGroupOptions()).all().get();
            }
        } catch (ExecutionException error) {
            if (!(error.getCause() instanceof GroupIdNotFoundException)) {
                throw error;
            }
        }
    }

    @Override
    public void close() {
        admin.close();
    }
}
