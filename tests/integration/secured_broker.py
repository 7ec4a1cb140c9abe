"""A broker that also listens where one must show a password, in the clear or through TLS, and whoever speaks to it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from demo.kafka import HOST, Kafka, free_port
from demo.processes import Processes
from tests.integration.broker import WAIT_S

USER = "statestore"
#: Listener with TLS that asks for a certificate of ours.
MUTUAL = "MUTUAL"
_LOGIN = "org.apache.kafka.common.security.{}LoginModule required"
_OPEN = ("PLAINTEXT", "CONTROLLER")
_SCRAM = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}


class SecuredBroker:
    """One broker with a listener of each kind, and one user who may come in by all of them.

    Parameters
    ----------
    more
        More settings of the broker, with underscores for the dots.

    Attributes
    ----------
    password
        Of the user and of its key; nothing else in the world has it in it.
    plain_servers
        The listener that asks for nothing, for what tests do themselves.
    """

    def __init__(self, processes: Processes, directory: Path, **more: str) -> None:
        self.password = f"canary{uuid4().hex}"
        self.certificate = directory / "certificate.pem"
        self._user_certificate, self._user_key = directory / "user.pem", directory / "user.key"
        self._ports: dict[str, int] = {}
        for name in ("SSL", "SASL_PLAINTEXT", "SASL_SSL", MUTUAL):
            self._ports[name] = free_port(self._ports.values())
        key = make_certificate(self.certificate)
        keys = directory / "broker.pem"
        keys.write_bytes(pem(key) + self.certificate.read_bytes())
        self._user_key.write_bytes(pem(make_certificate(self._user_certificate), self.password))
        settings = {"sasl.enabled.mechanisms": ",".join(["PLAIN", *_SCRAM]), "ssl.keystore.type": "PEM"}
        settings |= {"ssl.keystore.location": str(keys)}
        protocols = {name: name.replace(MUTUAL, "SSL") for name in self._ports} | dict.fromkeys(_OPEN, "PLAINTEXT")
        settings["listener.security.protocol.map"] = ",".join(f"{name}:{used}" for name, used in protocols.items())
        trusted = {"client.auth": "required", "truststore.type": "PEM", "truststore.location": self._user_certificate}
        settings |= {f"listener.name.{MUTUAL.lower()}.ssl.{name}": str(value) for name, value in trusted.items()}
        for protocol in ("sasl_plaintext", "sasl_ssl"):
            name = f"listener.name.{protocol}"
            plain = f'{_LOGIN.format("plain.Plain")} user_{USER}="{self.password}";'
            settings |= {f"{name}.plain.sasl.jaas.config": plain}
            for mechanism in _SCRAM:
                settings[f"{name}.{mechanism.lower()}.sasl.jaas.config"] = f"{_LOGIN.format('scram.Scram')};"
        settings |= {name.replace("_", "."): value for name, value in more.items()}
        self.plain_servers = Kafka(processes, directory / "kafka", secured=self._ports, settings=settings).start()
        self._add_user()

    def _add_user(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.plain_servers})
        for mechanism in _SCRAM.values():
            wanted = UserScramCredentialUpsertion(USER, ScramCredentialInfo(mechanism, 4096), self.password.encode())
            admin.alter_user_scram_credentials([wanted])[USER].result(WAIT_S)

    def servers(self, listener: str) -> str:
        """Return the address of a listener, named by its protocol, or `MUTUAL`."""
        return f"{HOST}:{self._ports[listener]}"

    def configuration(self, listener: str = "SASL_PLAINTEXT", mechanism: str = "PLAIN") -> dict[str, str]:
        """Return the client configuration of the user for a listener."""
        protocol = listener.replace(MUTUAL, "SSL")
        found = {"bootstrap.servers": self.servers(listener), "security.protocol": protocol}
        if protocol.startswith("SASL"):
            found |= {"sasl.mechanism": mechanism, "sasl.username": USER, "sasl.password": self.password}
        if protocol.endswith("SSL"):
            found |= {"ssl.ca.location": str(self.certificate)}
        if listener == MUTUAL:
            found |= {"ssl.certificate.location": str(self._user_certificate), "ssl.key.location": str(self._user_key)}
            found |= {"ssl.key.password": self.password}
        return found


@contextmanager
def configured(path: Path, configuration: Mapping[str, object]) -> Iterator[str]:
    """Have this process and its children use a client configuration, written to a file; yield the brokers in it."""
    path.touch(0o600)
    path.write_text(json.dumps(configuration), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STATESTORE_KAFKA_CONFIG", str(path))
        yield str(configuration["bootstrap.servers"])


def make_certificate(certificate: Path, host: str | None = None) -> ec.EllipticCurvePrivateKey:
    """Write a certificate that has signed itself, for a host or for this machine's loopback; return its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host or HOST)])
    of = x509.DNSName(host) if host else x509.IPAddress(ip_address(HOST))
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([of]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    return key


def pem(key: ec.EllipticCurvePrivateKey, password: str | None = None) -> bytes:
    """Return a key in PEM."""
    locked = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked)
