"""Places work on hosts: one piece in each Spark partition, with the host that already has its files."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Any, TypeVar

from pyspark import RDD, SparkContext
from pyspark.serializers import BatchedSerializer, CPickleSerializer

T = TypeVar("T")


def one_each(context: SparkContext, items: Sequence[T], hosts: Sequence[str | None]) -> RDD[T]:
    """Distribute items in their order, one to a partition.

    Parameters
    ----------
    hosts
        For each item, the host that Spark is to prefer; empty, or None: any.
    """
    if not any(hosts):
        return context.parallelize(items, len(items))
    jvm, jsc = context._jvm, context._jsc
    assert jvm is not None
    assert jsc is not None
    serializer = CPickleSerializer()

    @cache
    def preferred(host: str | None) -> Any:
        names = jvm.java.util.ArrayList()
        for name in () if host is None else names_of(host):
            names.add(name)
        return _sequence(jvm, names)

    placed = jvm.java.util.ArrayList()
    for item, host in zip(items, hosts, strict=True):
        placed.add(jvm.scala.Tuple2(serializer.dumps([item]), preferred(host)))
    tag = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("[B"))
    made = jsc.sc().makeRDD(_sequence(jvm, placed), tag)
    return RDD(made.toJavaRDD(), context, BatchedSerializer(serializer, 1))


def _sequence(jvm: Any, items: Any) -> Any:
    return jvm.scala.jdk.javaapi.CollectionConverters.asScala(items).toSeq()


def names_of(host: str) -> list[str]:
    """Return what Spark may call a host: by its name, or by an address of it."""
    names = [host]
    with suppress(OSError):
        names += socket.gethostbyname_ex(host)[2]
    return list(dict.fromkeys(names))
