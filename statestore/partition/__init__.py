"""A store partition: its known facts, its judgement, and its replacement."""
