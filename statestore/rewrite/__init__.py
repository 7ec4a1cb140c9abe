"""From the rows of closed stores to a changelog, and from that to stores again."""
