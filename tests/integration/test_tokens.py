"""Brokers that authenticate by tokens: everything that works with a password works with OIDC client credentials."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from statestore.errors import KafkaUnavailableError
from statestore.kafka import record_kernels  # noqa: F401  # otherwise short ranges are read through librdkafka
from statestore.kafka.client import client_config
from statestore.kafka.cluster import Cluster
from statestore.kafka.oauth import MskToken, initial_response
from statestore.kafka.open_transaction import find_open_transaction
from statestore.kafka.secure_connection import can_fetch, connect
from statestore.model import TopicPartition
from statestore.recovery.restore import restore
from statestore.reports import Status
from statestore.tasks.stream_task import run_task
from statestore.verification.check import verify
from statestore.verification.options import VerifyOptions
from tests.integration.broker import T0, create_topic, produce, set_quota, settle, transaction, unique
from tests.integration.log_reading import read
from tests.integration.secured_broker import configured
from tests.integration.support import Application
from tests.integration.token_broker import TokenBroker, token_broker

LIFETIME_S = 2.0
#: A whole request for the versions of the broker's requests, without a client id.
API_VERSIONS = bytes.fromhex("0000000a 0012 0000 00000001 ffff")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenBroker]:
    with token_broker(tmp_path_factory.mktemp("tokens")) as made:
        yield made


def test_a_store_is_processed_lost_verified_and_restored_with_tokens(broker: TokenBroker, tmp_path: Path) -> None:
    application = Application(broker.plain_servers, tmp_path)
    application.send([(b"a", b"1"), (b"a", b"2"), (b"b", b"1"), (b"b", None)])
    configuration = broker.configuration()
    cluster = Cluster(configuration["bootstrap.servers"], 60)
    task, store = (make(cluster=cluster) for make in (application.task_spec, application.store_spec))
    planned = application.restore_spec("full", cluster=cluster)
    with configured(tmp_path / "client.json", configuration) as servers:
        assert can_fetch(client_config(servers)), "ranges of a log are fetched on direct connections"
        assert run_task(task).failure is None
    settle(application.servers, application.output, application.changelog)
    shutil.rmtree(application.live)
    with configured(tmp_path / "client.json", configuration):
        assert verify(store).status is Status.MISSING
        assert restore(planned).failure is None
        assert verify(store, VerifyOptions(depth="deep")).status is Status.OK
    application.assert_oracle()


@pytest.mark.long
def test_connections_continue_with_new_tokens_when_theirs_expire(
    broker: TokenBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker.endpoint, "lifetime_s", 2.0)
    with configured(tmp_path / "client.json", broker.configuration(scope="kafka")) as servers:
        settings, before = client_config(servers), broker.endpoint.issued
        host, _, port = servers.partition(":")
        while broker.endpoint.issued < before + 3:  # each connection brings a token that is still valid
            connect((host, int(port)), settings, 30.0).close()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_read_continues_when_sessions_expire(
    way: str, broker: TokenBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = create_topic(broker.plain_servers, unique("log"))
    for _ in range(6):  # the broker never sends a batch that is larger than its quota allows in ten seconds
        produce(broker.plain_servers, log, [(b"k", os.urandom(1_000)) for _ in range(10)])
    monkeypatch.setattr(broker.endpoint, "lifetime_s", LIFETIME_S)
    client = unique("limited")
    set_quota(broker.plain_servers, "consumer_byte_rate", 4_000, client)
    # Extensions give each test its own tokens.
    configuration = broker.configuration(scope="kafka", extensions=f"way={len(way)}") | {"client.id": client}
    with configured(tmp_path / "client.json", configuration) as servers:
        host, _, port = servers.partition(":")
        unused, before = connect((host, int(port)), client_config(servers), 30.0), broker.endpoint.issued
        started = time.monotonic()
        assert [row.offset for row in read(Cluster(servers, 30), log, 0, 60)] == list(range(60))
        assert time.monotonic() - started > 3 * LIFETIME_S
    assert broker.endpoint.issued >= before + 3
    with unused:  # the broker does close connections of expired sessions
        unused.sendall(API_VERSIONS)
        assert unused.recv(1) == b""


@pytest.mark.long
def test_the_transaction_that_holds_back_a_log_is_found_with_tokens(broker: TokenBroker, tmp_path: Path) -> None:
    topic = create_topic(broker.plain_servers, unique("open"))
    producer = transaction(broker.plain_servers, topic, [(b"a", b"1")], end="open", timestamp=T0)
    configuration = broker.configuration(scope="kafka", extensions="traceId=1")
    with configured(tmp_path / "client.json", configuration) as servers:
        found = find_open_transaction(Cluster(servers, 30), TopicPartition(topic, 0), 0)
    producer.abort_transaction(30)
    assert found is not None
    assert found.transactional_id is not None


@pytest.mark.long
def test_a_refused_secret_is_named_as_the_endpoints_answer_and_not_shown(broker: TokenBroker, tmp_path: Path) -> None:
    wrong = broker.configuration(client_secret="canary-wrong")
    with configured(tmp_path / "client.json", wrong) as servers:
        with pytest.raises(OSError, match="answers 401"):
            initial_response(client_config(servers), 30.0)
        with pytest.raises(KafkaUnavailableError) as refused:
            Cluster(servers, 10).topics.describe(["any"])
    assert "canary" not in f"{refused.value} {refused.value.evidence}"


@pytest.mark.long
def test_a_token_for_another_audience_is_refused_by_the_broker(broker: TokenBroker, tmp_path: Path) -> None:
    with configured(tmp_path / "client.json", broker.configuration(scope="another")) as servers:
        host, _, port = servers.partition(":")
        with pytest.raises(OSError, match="refuse"):
            connect((host, int(port)), client_config(servers), 30.0)


@pytest.mark.long
def test_an_endpoint_that_does_not_answer_is_named(broker: TokenBroker, tmp_path: Path) -> None:
    nowhere = broker.configuration(token_endpoint_url="http://127.0.0.1:1/token")
    with (
        configured(tmp_path / "client.json", nowhere) as servers,
        pytest.raises(OSError, match=r"127\.0\.0\.1:1/token cannot be reached"),
    ):
        initial_response(client_config(servers), 30.0)


def test_msk_tokens_are_urls_signed_for_the_region(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("aws_msk_iam_sasl_signer", reason="the extra msk is not installed")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    response = initial_response({"oauth_cb": MskToken("eu-west-1")}, 30.0)
    assert response.startswith(b"n,,\x01auth=Bearer ")
