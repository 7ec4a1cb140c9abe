import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/** Takes the lock file named on the command line as Kafka Streams does, says what came of it, holds it until stdin ends. */
public class HoldLock {
    public static void main(String[] args) throws Exception {
        try (FileChannel channel =
                FileChannel.open(Path.of(args[0]), StandardOpenOption.CREATE, StandardOpenOption.WRITE)) {
            System.out.println(channel.tryLock() == null ? "refused" : "held");
            System.in.read();
        }
    }
}
