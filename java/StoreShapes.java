import java.io.IOException;
import java.io.InputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.internals.InternalTopologyBuilder;
import org.apache.kafka.streams.processor.internals.ProcessorTopology;

/**
 * Prints what the stores of a topology are, as `statestore --shapes` takes it, when no directory of them is left.
 *
 * <pre>
 * java -cp 'app.jar:libs/*' StoreShapes.java orders com.example.Orders::topology [NAME=VALUE ...] > shapes.json
 * </pre>
 *
 * The first argument is the application.id. The second names a static method without arguments, or with one of
 * Properties, or a static field; it gives a Topology, or a StreamsBuilder. NAME=VALUE are settings of the application
 * that its stores depend on, such as dsl.store.suppliers.class, dsl.store.format and topology.optimization. No broker is
 * asked. The stores and processors of the topology are made, and none is opened.
 *
 * Works with Kafka Streams 3.9 to 4.4. What it reads there is internal: where something is missing, it ends with an error.
 */
public final class StoreShapes {
    private static final String UNKNOWN = "unknown";
    /** Fields of the wrappers that have no method `wrapped`. */
    private static final List<String> INSIDE = List.of("store", "inner");

    private final String application;
    private final Map<String, Map<String, Object>> rows = new TreeMap<>();

    private StoreShapes(String application) {
        this.application = application;
    }

    public static void main(String[] args) throws Exception {
        if (args.length < 2 || !args[1].contains("::")) {
            System.err.println("usage: StoreShapes APPLICATION_ID CLASS::METHOD_OR_FIELD [NAME=VALUE ...]");
            System.exit(2);
        }
        Properties properties = new Properties();
        for (int at = 2; at < args.length; at++) {
            int equals = args[at].indexOf('=');
            if (equals < 1) {
                System.err.println(args[at] + ": expected NAME=VALUE");
                System.exit(2);
            }
            properties.setProperty(args[at].substring(0, equals), args[at].substring(equals + 1));
        }
        properties.setProperty(StreamsConfig.APPLICATION_ID_CONFIG, args[0]);
        properties.putIfAbsent(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "localhost:9092");  // asked for, and not used
        PrintStream output = System.out;
        System.setOut(System.err);  // what the application prints is no part of the file
        StoreShapes shapes = new StoreShapes(args[0]);
        shapes.read(topology(args[1], properties), properties);
        output.println(shapes);
        output.flush();
        System.exit(output.checkError() ? 1 : 0);  // whatever threads the application has started
    }

    private static Topology topology(String reference, Properties properties) throws Exception {
        int colons = reference.indexOf("::");
        String member = reference.substring(colons + 2);
        Object found = member(Class.forName(reference.substring(0, colons)), member, properties);
        if (found instanceof StreamsBuilder builder) {
            return builder.build(properties);
        }
        if (found instanceof Topology topology) {
            return topology;
        }
        throw new IllegalArgumentException(reference + " gives " + found + ", expected a Topology or a StreamsBuilder");
    }

    private static Object member(Class<?> owner, String name, Properties properties) throws Exception {
        for (Method method : owner.getDeclaredMethods()) {
            List<Class<?>> types = List.of(method.getParameterTypes());
            if (method.getName().equals(name) && (types.isEmpty() || types.equals(List.of(Properties.class)))) {
                method.setAccessible(true);
                try {
                    return types.isEmpty() ? method.invoke(null) : method.invoke(null, properties);
                } catch (InvocationTargetException error) {
                    throw error.getCause() instanceof Exception cause ? cause : error;
                }
            }
        }
        Field field = owner.getDeclaredField(name);
        field.setAccessible(true);
        return field.get(null);
    }

    private void read(Topology topology, Properties properties) throws Exception {
        InternalTopologyBuilder builder = (InternalTopologyBuilder) value(topology, "internalTopologyBuilder");
        builder.rewriteTopology(new StreamsConfig(properties));
        ProcessorTopology global = builder.buildGlobalStateTopology();
        TreeSet<String> globals = new TreeSet<>();
        if (global != null) {
            for (StateStore store : global.globalStateStores()) {
                globals.add(store.name());
                boolean processed = Optional.ofNullable(global.storeNameToReprocessOnRestore().get(store.name()))
                    .orElse(Optional.empty()).isPresent();
                String topic = global.storeToChangelogTopic().get(store.name());
                add(store, null, topic, processed ? "processor" : "table");
            }
        }
        for (int subtopology : new TreeSet<>(builder.nodeGroups().keySet())) {
            ProcessorTopology part = builder.buildSubtopology(subtopology);
            for (StateStore store : part.stateStores()) {
                if (!globals.contains(store.name())) {
                    add(store, subtopology, part.storeToChangelogTopic().get(store.name()), null);
                }
            }
        }
    }

    private void add(StateStore store, Integer subtopology, String changelog, String global) throws Exception {
        List<Object> layers = layers(store);
        Object innermost = layers.get(layers.size() - 1);
        String kind = kind(layers);
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("application", application);
        row.put("store", store.name());
        row.put("kind", kind);
        row.put("format", format(layers));
        Object segments = optional(innermost, "segments");
        if (segments == null) {
            segments = optional(innermost, "segmentStores");
        }
        row.put("retention_ms", segments == null ? null : value(segments, "retentionPeriod"));
        row.put("segment_interval_ms", segments == null ? null : value(segments, "segmentInterval"));
        row.put("window_size_ms", first(layers, "windowSize"));
        row.put("retain_duplicates", Boolean.TRUE.equals(first(layers, "retainDuplicates")));
        row.put("subtopology", subtopology);
        row.put("changelog", changelog);
        row.put("topic_id", null);
        row.put("global", global);
        row.put("in_memory", !store.persistent());
        row.put("logged", changelog != null);
        row.put("offsets_beside", offsetsBeside());
        row.put("described", "");
        rows.put(store.name(), row);
    }

    /** A store and what it wraps, from the outside. */
    private static List<Object> layers(StateStore store) throws Exception {
        List<Object> found = new ArrayList<>();
        Object layer = store;
        while (layer != null) {
            found.add(layer);
            layer = inside(layer);
        }
        return found;
    }

    private static Object inside(Object layer) throws Exception {
        if (!layer.getClass().getName().startsWith("org.apache.kafka.streams.")) {
            return null;  // the application's own
        }
        for (Class<?> type = layer.getClass(); type != null; type = type.getSuperclass()) {
            for (Method method : type.getDeclaredMethods()) {
                if (method.getName().equals("wrapped") && method.getParameterCount() == 0) {
                    method.setAccessible(true);
                    return method.invoke(layer);
                }
            }
        }
        for (String name : INSIDE) {
            if (optional(layer, name) instanceof StateStore store) {
                return store;
            }
        }
        return null;
    }

    /** What kind of store it is, by the classes of its layers; of one that is kept in memory it does not matter. */
    private static String kind(List<Object> layers) throws Exception {
        Object innermost = layers.get(layers.size() - 1);
        String names = names(layers);
        String last = innermost.getClass().getSimpleName();
        if (!innermost.getClass().getName().startsWith("org.apache.kafka.streams.state.internals.")) {
            return innermost.getClass().getName();
        }
        if (last.contains("Versioned")) {
            return "versioned";
        }
        String order = names.contains("RocksDBTimeOrdered") ? "time-ordered-" : "";
        if (names.contains("TimeOrderedKeyValue") && !last.startsWith("InMemory")) {
            return "time-ordered-buffer";
        }
        if (names.contains("SessionStore")) {
            return order + "session";
        }
        if (names.contains("WindowStore")) {
            boolean indexed = optional(innermost, "indexKeySchema") instanceof Optional<?> index && index.isPresent();
            return (indexed ? "indexed-" : "") + order + "window";
        }
        if (last.startsWith("RocksDB") && last.endsWith("BytesStore")) {
            return UNKNOWN;
        }
        return last.startsWith("RocksDB") || last.startsWith("InMemory") || last.startsWith("MemoryLRU")
            || last.startsWith("MemoryNavigableLRU") ? "key-value" : UNKNOWN;
    }

    /** How values lie on disk: by the innermost layer, as those around it may only adapt it. */
    private static String format(List<Object> layers) {
        Object innermost = layers.get(layers.size() - 1);
        for (Class<?> type = innermost.getClass(); type != null; type = type.getSuperclass()) {
            String name = type.getSimpleName();
            if (name.contains("Headers")) {
                return "headers";
            }
            if (name.contains("Timestamped")) {
                return "timestamped";
            }
        }
        // Of time-ordered stores one class has all: what it holds is told by the stores around it.
        String names = names(layers);
        if (!names.contains("RocksDBTimeOrdered")) {
            return "plain";
        }
        if (names.contains("Headers")) {
            return "headers";
        }
        return names.contains("MeteredTimestamped") ? "timestamped-in-default" : "plain";
    }

    private static String names(List<Object> layers) {
        StringBuilder names = new StringBuilder();
        for (Object layer : layers) {
            names.append(layer.getClass().getSimpleName()).append(' ');
        }
        return names.toString();
    }

    private static Object first(List<Object> layers, String field) throws Exception {
        for (int at = layers.size() - 1; at >= 0; at--) {
            Object found = optional(layers.get(at), field);
            if (found != null) {
                return found;
            }
        }
        return null;
    }

    private static Object value(Object of, String field) throws Exception {
        Object found = optional(of, field);
        if (found == null) {
            throw new IllegalStateException(
                of.getClass().getName() + " of Kafka Streams " + version() + " has no field " + field);
        }
        return found;
    }

    private static Object optional(Object of, String field) throws Exception {
        for (Class<?> type = of.getClass(); type != null; type = type.getSuperclass()) {
            for (Field found : type.getDeclaredFields()) {
                if (found.getName().equals(field)) {
                    found.setAccessible(true);
                    return found.get(of);
                }
            }
        }
        return null;
    }

    /** Versions before 4.3 have offsets beside their stores. */
    private static boolean offsetsBeside() throws IOException {
        String[] parts = version().split("\\.");
        int major = Integer.parseInt(parts[0]);
        return major < 4 || major == 4 && Integer.parseInt(parts[1]) < 3;
    }

    /** The version of Kafka Streams, as its jars have it. */
    private static String version() throws IOException {
        try (InputStream written = StreamsConfig.class.getResourceAsStream("/kafka/kafka-version.properties")) {
            Properties found = new Properties();
            found.load(written);
            return found.getProperty("version").trim();
        }
    }

    @Override
    public String toString() {
        StringBuilder json = new StringBuilder("{\"shapes\": [");
        String before = "\n  ";
        for (Map<String, Object> row : rows.values()) {
            json.append(before).append('{');
            String comma = "";
            for (Map.Entry<String, Object> field : row.entrySet()) {
                Object found = field.getValue();
                json.append(comma).append('"').append(field.getKey()).append("\": ");
                json.append(found instanceof String text ? quoted(text) : String.valueOf(found));
                comma = ", ";
            }
            json.append('}');
            before = ",\n  ";
        }
        return json.append("\n]}").toString();
    }

    private static String quoted(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            quoted.append(c == '"' || c == '\\' ? "\\" + c : c < ' ' ? String.format("\\u%04x", (int) c) : "" + c);
        }
        return quoted.append('"').toString();
    }
}
