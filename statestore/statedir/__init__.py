"""The state directory on disk: paths, locks, our own records, and the swap of a store with its journal."""
