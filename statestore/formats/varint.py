"""Numbers of as many bytes as they need: seven bits in each, the low ones first, the high bit where more follow."""

from __future__ import annotations


def varint(number: int) -> bytes:
    """Return a number that is not negative as a varint."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
