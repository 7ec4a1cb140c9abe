"""The broker that tests stop: what they rely on when it is paused."""

from __future__ import annotations

import pytest

from tests.faults.own_broker import OwnBroker
from tests.integration.broker import create_topic, produce, unique


@pytest.mark.long
def test_a_paused_broker_stands_still_as_soon_as_it_is_paused(own_broker: OwnBroker) -> None:
    topic = create_topic(own_broker.servers, unique("busy"))
    for _ in range(20):
        produce(own_broker.servers, topic, [(b"k", b"v")] * 100)
        assert not own_broker.stands_still()
        own_broker.pause()
        assert own_broker.stands_still()
        own_broker.resume()
