"""Keys go where Kafka's producers put them."""

from __future__ import annotations

import pytest

from statestore.kafka.partitioner import murmur2, partition_of

#: From Kafka's own UtilsTest.testMurmur2.
KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "hashed"), KNOWN.items())
def test_the_hash_is_kafkas(key, hashed):
    assert murmur2(key) == hashed & 0xFFFFFFFF


def test_the_partition_is_that_of_the_positive_hash():
    assert [partition_of(b"21", count) for count in (1, 2, 7)] == [0, 0, ((-973932308) & 0x7FFFFFFF) % 7]
