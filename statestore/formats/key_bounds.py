"""Bounds of row keys that are a user's key and a suffix of fixed length."""

from __future__ import annotations


def upper_bound(key_to: bytes, largest_suffix: bytes) -> bytes:
    """Smallest row key not below any `key + suffix` with `key <= key_to` and `suffix <= largest_suffix`.

    A shorter key can have the larger row key, because its suffix starts where `key_to` goes on. So the bound is the
    largest of all prefixes of `key_to`, each with the suffix; behind the first one whose suffix is above what follows
    in `key_to`, only as many can be larger as the suffix has bytes.
    """
    length = len(largest_suffix)
    for at in range(len(key_to)):
        if largest_suffix > key_to[at : at + length]:
            return max(key_to[:end] + largest_suffix for end in range(at, min(at + length, len(key_to)) + 1))
    return key_to + largest_suffix


def after_prefix(prefix: bytes) -> bytes | None:
    """Smallest key above all that start with the prefix; None if there is none."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
