"""Which properties of a client configuration are taken, and what is said of the others: never their values."""

from __future__ import annotations

import pytest

from statestore.errors import InputError
from statestore.kafka.client import client_config
from statestore.kafka.client_properties import checked_properties
from statestore.kafka.oauth import initial_response
from statestore.kafka.secure_connection import can_fetch

CANARY = "canary-5f2c"
PLAIN = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "user",
    "sasl.password": CANARY,
}
OAUTH = {
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.client.id": "user",
    "sasl.oauthbearer.client.secret": CANARY,
    "sasl.oauthbearer.token.endpoint.url": "https://issuer.example/token",
}


def test_names_and_values_are_taken_as_librdkafka_has_them_both_ways():
    given = {**PLAIN, "security.protocol": "sasl_ssl", "bootstrap.servers": "a:1", "ssl.ca.location": "/ca.pem"}
    given["sasl.mechanisms"] = given.pop("sasl.mechanism")
    taken = {**PLAIN, "bootstrap.servers": "a:1", "ssl.ca.location": "/ca.pem"}
    assert checked_properties(given, "here") == taken


@pytest.mark.parametrize(
    "name",
    ["isolation.level", "enable.auto.commit", "transactional.id", "group.id", "acks", "enable.idempotence", "debug"],
)
def test_what_exactly_once_rests_on_cannot_be_set(name):
    with pytest.raises(InputError, match=rf"^here: {name} cannot be set: .+; remove it$") as caught:
        checked_properties({**PLAIN, name: CANARY}, "here")
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"sasl.passwrod": CANARY}, "here: sasl.passwrod is not an accepted property.*sasl.password"),
        ({"plugin.library.paths": CANARY}, "here: plugin.library.paths is not an accepted property"),
        ({"error_cb": CANARY}, "here: error_cb is not an accepted property"),
        ({"sasl.password": [CANARY]}, "here: sasl.password: expected a string.* found list"),
        ({"sasl.password": None}, "here: sasl.password: expected a string.* found NoneType"),
        ({"sasl.mechanism": "NTLM"}, "here: sasl.mechanism: expected one of PLAIN, .*found 'NTLM'"),
        ({"sasl.mechanism": "GSSAPI"}, "here: sasl.mechanism GSSAPI also needs sasl.kerberos.principal, .*keytab"),
        ({"sasl.mechanism": "AWS_MSK_IAM"}, "here: sasl.mechanism AWS_MSK_IAM also needs aws.region"),
        (
            {"sasl.mechanism": "OAUTHBEARER"},
            "also needs sasl.oauthbearer.client.id, .*client.secret, .*token.endpoint.url",
        ),
        ({**OAUTH, "sasl.oauthbearer.method": "default"}, "here: sasl.oauthbearer.method: expected oidc"),
        ({**OAUTH, "sasl.oauthbearer.token.endpoint.url": "file:///x"}, "expected a URL with https or http"),
        ({"security.protocol": "TLS"}, "here: security.protocol: expected one of .*found 'TLS'"),
        ({"security.protocol": "SSL"}, "here: sasl.mechanism, .* would not be used: expected security.protocol"),
        ({"sasl.mechanisms": "PLAIN"}, "here: sasl.mechanisms and sasl.mechanism are two names of one property"),
    ],
)
def test_what_is_wrong_is_named_with_what_was_expected(changes, expected):
    with pytest.raises(InputError, match=expected) as caught:
        checked_properties({**PLAIN, **changes}, "here")
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize("missing", ["sasl.mechanism", "sasl.username", "sasl.password"])
def test_what_sasl_needs_besides_is_asked_for(missing):
    given = {name: value for name, value in PLAIN.items() if name != missing}
    with pytest.raises(InputError, match=f"here: .* also needs {missing}"):
        checked_properties(given, "here")


def test_brokers_that_are_asked_for_come_before_those_of_the_file(tmp_path, monkeypatch):
    path = tmp_path / "client.json"
    path.touch(0o600)
    path.write_text('{"bootstrap.servers": "a:1", "client.id": "ours"}')
    monkeypatch.setenv("STATESTORE_KAFKA_CONFIG", str(path))
    config = client_config("b:2", acks="all")
    assert (config["bootstrap.servers"], config["client.id"], config["acks"]) == ("b:2", "ours", "all")


@pytest.mark.parametrize(
    ("changes", "ours"),
    [
        ({"ssl.ca.location": "/ca.pem"}, True),
        ({"ssl.ca.location": "/ca.pem", "ssl.certificate.location": "/c.pem", "ssl.key.location": "/k.pem"}, True),
        ({"ssl.ca.location": "/ca.pem", "ssl.keystore.location": "/store.p12"}, False),
        ({}, False),  # which certificates are trusted then, librdkafka alone knows
        ({"ssl.ca.location": "probe"}, False),
        ({"ssl.ca.location": "/ca.pem", "ssl.cipher.suites": "x"}, False),
        ({"ssl.ca.location": "/ca.pem", "sasl.username": "a,b=c"}, False),  # kafka-python does not escape them
    ],
)
def test_only_what_is_known_to_mean_the_same_is_spoken_on_connections_of_our_own(changes, ours):
    assert can_fetch({**PLAIN, **changes}) is ours


def test_a_signer_without_credentials_is_a_connection_error() -> None:
    def signer(_: str) -> tuple[str, float]:
        raise RuntimeError("Unable to locate credentials")

    with pytest.raises(ConnectionError, match="Unable to locate credentials"):
        initial_response({"oauth_cb": signer}, 30.0)
