"""The state directory on disk: paths, locks, records, and the swap of a store with its journal."""
