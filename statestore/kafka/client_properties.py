"""Which properties of a client configuration are taken: those that say where the brokers are and how to come in.

They are librdkafka's, as in Airflow's Kafka connections. Everything else is decided by the library, and some of it is
what exactly once rests on, so a configuration cannot change it. No message shows a value: it may be a password.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from statestore.errors import InputError
from statestore.kafka.oauth import PREFIX, REQUIRED

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
#: SASL mechanisms, each with the properties that it needs.
MECHANISMS = {
    **dict.fromkeys(("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"), ("sasl.username", "sasl.password")),
    "OAUTHBEARER": REQUIRED,
    "AWS_MSK_IAM": ("aws.region",),
    "GSSAPI": ("sasl.kerberos.principal", "sasl.kerberos.keytab"),
}

_BROKERS = "bootstrap.servers"
_PROTOCOL = "security.protocol"
_MECHANISM = "sasl.mechanism"
_REGION = "aws.region"
_TOKENS_FROM = f"{PREFIX}token.endpoint.url"
_ALIASES = {"sasl.mechanisms": _MECHANISM}

_TAKEN = frozenset(
    {
        _BROKERS,
        _PROTOCOL,
        _MECHANISM,
        *(name for needed in MECHANISMS.values() for name in needed),
        *(f"{PREFIX}{name}" for name in ("method", "scope", "extensions")),
        "https.ca.location",
        "sasl.kerberos.service.name",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.key.location",
        "ssl.key.pem",
        "ssl.key.password",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.crl.location",
        "ssl.cipher.suites",
        "ssl.curves.list",
        "ssl.sigalgs.list",
        "ssl.endpoint.identification.algorithm",
        "enable.ssl.certificate.verification",
        "client.id",
        "client.dns.lookup",
        "broker.address.family",
    }
)

_REFUSED = {
    "isolation.level": "stores and changelogs are read under read_committed, or rows that were aborted would be kept",
    "enable.auto.commit": "offsets are committed with the records that they stand for, or records would be skipped",
    "enable.auto.offset.store": "offsets are committed with the records that they stand for",
    "transactional.id": "it is application and task, or an earlier attempt of the task would not be fenced",
    "group.id": "the group is the application's, as Kafka Streams has it",
    "acks": "records must be on all replicas before the store is committed",
    "enable.idempotence": "without it a retry writes a record twice, or two in another order",
    "partitioner": "records must go where Kafka's own partitioner sends them",
    "debug": "the client would write what it sends to its log",
}


def checked_properties(given: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return the properties as all clients take them, or say what is wrong with them.

    Parameters
    ----------
    given
        librdkafka's properties, such as `sasl.username`.
    source
        Where they are from, for the error.

    Raises
    ------
    InputError
        If there is one that is unknown, malformed or not to be changed, or if one that belongs to another is missing.
    """
    taken: dict[str, Any] = {}
    for name, value in given.items():
        own_name = _ALIASES.get(name, name)
        if own_name in _REFUSED:
            raise InputError(f"{source}: {name} cannot be set: {_REFUSED[own_name]}; remove it")
        if own_name not in _TAKEN:
            raise InputError(
                f"{source}: {name} is not an accepted property. Remove it, or correct its name. "
                f"Expected only: {', '.join(sorted(_TAKEN))}"
            )
        if own_name in taken:
            raise InputError(f"{source}: {name} and {own_name} are two names of one property; remove one of them")
        if not isinstance(value, str | int | float):
            raise InputError(
                f"{source}: {name}: expected a string, a number, true, or false, found {type(value).__name__}"
            )
        taken[own_name] = value
    if _PROTOCOL in taken:
        taken[_PROTOCOL] = _one_of(taken, _PROTOCOL, PROTOCOLS, source)
    _check_sasl(taken, source)
    return taken


def _check_sasl(taken: dict[str, Any], source: str) -> None:
    given = [name for name in taken if name.startswith("sasl.") or name == _REGION]
    if not str(taken.get(_PROTOCOL, "")).startswith("SASL_"):
        # librdkafka would not use them, and the broker would never answer.
        if given:
            raise InputError(
                f"{source}: {', '.join(given)} would not be used: expected {_PROTOCOL} SASL_SSL or SASL_PLAINTEXT "
                f"with it, found {taken.get(_PROTOCOL, 'none')}"
            )
        return
    if _MECHANISM not in taken:
        raise InputError(f"{source}: {_PROTOCOL} {taken[_PROTOCOL]} also needs {_MECHANISM}")
    mechanism = taken[_MECHANISM] = _one_of(taken, _MECHANISM, tuple(MECHANISMS), source)
    if missing := [name for name in MECHANISMS[mechanism] if name not in taken]:
        raise InputError(f"{source}: {_MECHANISM} {mechanism} also needs {', '.join(missing)}")
    if mechanism == "OAUTHBEARER":
        _check_oauth(taken, source)


def _check_oauth(taken: dict[str, Any], source: str) -> None:
    method = str(taken.setdefault(f"{PREFIX}method", "oidc")).lower()
    if method != "oidc":
        raise InputError(f"{source}: {PREFIX}method: expected oidc, found {method!r}")
    if not str(taken[_TOKENS_FROM]).startswith(("https://", "http://")):
        raise InputError(f"{source}: {_TOKENS_FROM}: expected a URL with https or http")


def _one_of(taken: Mapping[str, Any], name: str, known: tuple[str, ...], source: str) -> str:
    value = str(taken[name]).upper()
    if value not in known:
        raise InputError(f"{source}: {name}: expected one of {', '.join(known)}, found {taken[name]!r}")
    return value
