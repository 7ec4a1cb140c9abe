import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.Admin;

/** Several runs of the driver, one after the other, and the topics that each has made: one line of a file for each. */
final class Several {
    private Several() {}

    public static void main(String[] args) throws Exception {
        List<String> made = new ArrayList<>();
        for (String line : Files.readAllLines(Path.of(args[0]))) {
            String[] run = line.split("\t");
            try (Admin admin = Admin.create(java.util.Map.of("bootstrap.servers", Flags.parse(run).one("--bootstrap-servers")))) {
                Set<String> before = admin.listTopics().names().get();
                Driver.main(run);
                Set<String> topics = new TreeSet<>(admin.listTopics().names().get());
                topics.removeAll(before);
                made.add(String.join("\t", topics));
            }
        }
        Files.write(Path.of(args[1]), made, StandardCharsets.UTF_8);
    }
}
