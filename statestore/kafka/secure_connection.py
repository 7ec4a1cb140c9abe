"""Direct connections to brokers: plain, or with TLS and SASL as the client configuration requires.

Only settings that mean the same here as in librdkafka are supported: TLS against named certificates, a client
certificate, and SASL with PLAIN, SCRAM, and OAUTHBEARER. With any other setting, `can_fetch` is false, and librdkafka
makes the connection. SASL comes before all other requests (KIP-43, KIP-152):

    request:  i32 length | i16 api | i16 version | i32 correlation id (0) | client id | what follows
    answer:   i32 length | i32 correlation id | i16 error | what follows

    SaslHandshake 1     asks: mechanism               gets: i32 count, names
    SaslAuthenticate 0  asks: i32 length | bytes      gets: message | i32 length | bytes

Names and messages begin with an i16 length, which is -1 for null.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from struct import Struct
from struct import error as StructError
from typing import Any

from statestore.kafka.oauth import CALLBACK, PREFIX, REQUIRED, initial_response

_INT, _SHORT = Struct(">i"), Struct(">h")
_HEAD = Struct(">hhi")
_ANSWER = Struct(">ih")
_HANDSHAKE, _AUTHENTICATE = (17, 1), (36, 0)
_LARGEST_ANSWER = 1024 * 1024

#: What is known of each setting: what it means here, or that it means nothing for one connection.
_KNOWN = {
    *("bootstrap.servers", "client.id", "log_level", "socket.keepalive.enable", "allow.auto.create.topics"),
    *("client.dns.lookup", "broker.address.family"),
    *("security.protocol", "sasl.mechanism", "sasl.username", "sasl.password"),
    *("ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.key.password"),
    "ssl.endpoint.identification.algorithm",
    *(CALLBACK, "https.ca.location", *REQUIRED, *(f"{PREFIX}{name}" for name in ("method", "scope", "extensions"))),
}
#: SASL mechanisms of direct connections.
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


def can_fetch(settings: Mapping[str, Any]) -> bool:
    """True if brokers can be spoken to by connections of our own, as these settings of the clients want it."""
    if not settings.keys() <= _KNOWN:
        return False
    if settings.get("sasl.mechanism", "PLAIN") not in _MECHANISMS:
        return False
    if set(str(settings.get("sasl.username", ""))) & set(",="):  # kafka-python does not escape them, as SCRAM asks
        return False
    # Which certificates librdkafka trusts where none are named is its own knowledge.
    return not _wants_tls(settings) or Path(str(settings.get("ssl.ca.location", ""))).is_absolute()


def connect(address: tuple[str, int], settings: Mapping[str, Any], timeout_s: float) -> socket.socket:
    """Return a connection on which requests may be sent.

    Parameters
    ----------
    address
        Host and port of a broker.
    settings
        The clients' configuration, with which `can_fetch` has said yes.
    timeout_s
        Deadline of each step.

    Raises
    ------
    OSError
        If there is none to be had.
    """
    made = socket.create_connection(address, timeout_s)
    try:
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if _wants_tls(settings):
            made = tls_context(settings).wrap_socket(made, server_hostname=address[0])
        if _protocol(settings).startswith("SASL_"):
            _authenticate(made, settings, timeout_s)
    except BaseException:
        made.close()
        raise
    return made


def tls_context(settings: Mapping[str, Any]) -> ssl.SSLContext:
    """Return what Python's TLS needs to do as the settings say."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.get("ssl.endpoint.identification.algorithm") != "none"
    trusted = settings["ssl.ca.location"]
    context.load_verify_locations(*((None, trusted) if Path(trusted).is_dir() else (trusted,)))
    if "ssl.certificate.location" in settings:
        # Without a password at all, Python would ask for one on the terminal.
        password = str(settings.get("ssl.key.password", ""))
        context.load_cert_chain(settings["ssl.certificate.location"], settings.get("ssl.key.location"), password)
    return context


def _protocol(settings: Mapping[str, Any]) -> str:
    return str(settings.get("security.protocol", "PLAINTEXT"))


def _wants_tls(settings: Mapping[str, Any]) -> bool:
    return _protocol(settings).endswith("SSL")


def _authenticate(connection: socket.socket, settings: Mapping[str, Any], timeout_s: float) -> None:
    name, client_id = settings["sasl.mechanism"], _text(str(settings["client.id"]))

    def said(message: bytes) -> bytes:
        return _ask(connection, _AUTHENTICATE, client_id, _INT.pack(len(message)) + message)

    first = initial_response(settings, timeout_s) if name == "OAUTHBEARER" else b""
    try:
        _ask(connection, _HANDSHAKE, client_id, _text(name))
        if name == "OAUTHBEARER":
            if refusal := said(first):
                said(b"\x01")  # RFC 7628: the broker answers this with an error
                raise ConnectionError(f"the broker refuses the token: {refusal[:200].decode(errors='replace')}")
        else:
            _authenticate_with_password(name, settings, said)
    except (StructError, ValueError, LookupError) as error:
        raise ConnectionError(f"the broker does not authenticate as expected: {type(error).__name__}") from error


def _authenticate_with_password(name: str, settings: Mapping[str, Any], said: Callable[[bytes], bytes]) -> None:
    from kafka.net.sasl import get_sasl_mechanism  # takes half a second, and few need it

    mechanism = get_sasl_mechanism(name)(
        security_protocol="SASL_SSL",  # always: without TLS, it would log a warning for each connection
        sasl_mechanism=name,
        sasl_plain_username=str(settings["sasl.username"]),
        sasl_plain_password=str(settings["sasl.password"]),
    )
    while not mechanism.is_done():
        mechanism.receive(said(mechanism.auth_bytes()))
    if not mechanism.is_authenticated():
        raise ConnectionError("the broker did not authenticate us")


def _ask(connection: socket.socket, api: tuple[int, int], client_id: bytes, body: bytes) -> bytes:
    """Send a request; return the bytes that the answer ends with."""
    message = _HEAD.pack(*api, 0) + client_id + body
    connection.sendall(_INT.pack(len(message)) + message)
    (length,) = _INT.unpack(_receive(connection, _INT.size))
    if not _ANSWER.size <= length <= _LARGEST_ANSWER:
        raise ConnectionError(f"an answer of {length} bytes")
    answer = _receive(connection, length)
    _, error = _ANSWER.unpack_from(answer)
    if api == _HANDSHAKE:
        if error:
            raise ConnectionError(f"the broker refuses the mechanism: error {error}")
        return b""
    (size,) = _SHORT.unpack_from(answer, _ANSWER.size)
    at = _ANSWER.size + _SHORT.size
    if error:
        said = answer[at : at + max(size, 0)].decode(errors="replace")
        raise ConnectionError(f"the broker refuses to authenticate us: {said or f'error {error}'}")
    return answer[at + max(size, 0) + _INT.size :]


def _receive(connection: socket.socket, length: int) -> bytes:
    received = bytearray()
    while len(received) < length:
        some = connection.recv(length - len(received))
        if not some:
            raise ConnectionError("the broker closed the connection")
        received += some
    return bytes(received)


def _text(value: str) -> bytes:
    encoded = value.encode()
    return _SHORT.pack(len(encoded)) + encoded
