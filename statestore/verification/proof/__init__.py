"""Finds the offsets of its changelog that a store's rows equal, without asking the store (docs/proof.md)."""
