import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** The command line: a command, then `--flag value` pairs; a flag may come several times. */
record Flags(String command, Map<String, List<String>> values) {

    static Flags parse(String[] args) {
        if (args.length % 2 == 0) {
            throw new IllegalArgumentException("expected a command and pairs of --flag value, found " + List.of(args));
        }
        Map<String, List<String>> values = new LinkedHashMap<>();
        for (int i = 1; i < args.length; i += 2) {
            values.computeIfAbsent(args[i], flag -> new ArrayList<>()).add(args[i + 1]);
        }
        return new Flags(args[0], values);
    }

    String one(String flag) {
        List<String> found = all(flag);
        if (found.size() != 1) {
            throw new IllegalArgumentException("expected " + flag + " once, found " + found);
        }
        return found.get(0);
    }

    List<String> all(String flag) {
        return values.getOrDefault(flag, List.of());
    }

    /** The values of a repeated flag whose values look like `name=value`. */
    Map<String, String> settings(String flag) {
        Map<String, String> settings = new LinkedHashMap<>();
        for (String setting : all(flag)) {
            String[] parts = setting.split("=", 2);
            settings.put(parts[0], parts[1]);
        }
        return settings;
    }
}
