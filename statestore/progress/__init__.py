"""The progress of running work: files that it writes, and their presentation."""
