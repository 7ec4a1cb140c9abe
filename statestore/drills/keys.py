"""Ed25519 keys of the evidence: the private one signs, the public one is enough to verify.

    STATESTORE_EVIDENCE_KEY_FILE   PEM file with the private key (PKCS #8), mode 0600
    STATESTORE_EVIDENCE_KEY        the private key itself, as PEM

Reports, documents, and messages never contain a private key: a document names the SHA-256 of the public key.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from statestore.durable import write_new
from statestore.errors import InputError
from statestore.packages import require_extra
from statestore.private_config import read_private_file

# Loaded when a key is used: most processes sign nothing.
if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

KEY_FILE = "STATESTORE_EVIDENCE_KEY_FILE"
KEY = "STATESTORE_EVIDENCE_KEY"


class SigningKey:
    """A private key.

    Attributes
    ----------
    key_id
        SHA-256 of the public key.
    """

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.key_id = _key_id(key.public_key())

    def __repr__(self) -> str:
        return f"SigningKey({self.key_id})"

    def sign(self, content: bytes) -> bytes:
        """Return the signature of a text, 64 bytes."""
        return self._key.sign(content)


class PublicKey:
    """A public key.

    Attributes
    ----------
    key_id
        Its SHA-256.
    """

    def __init__(self, key: Ed25519PublicKey) -> None:
        self._key = key
        self.key_id = _key_id(key)

    def verifies(self, signature: bytes, content: bytes) -> bool:
        """Return whether a signature is one of this key for a text."""
        from cryptography.exceptions import InvalidSignature

        try:
            self._key.verify(signature, content)
        except InvalidSignature:
            return False
        return True


def signing_key() -> SigningKey | None:
    """Return the private key that the environment names; None if it names none.

    Raises
    ------
    InputError
        If there are two, or it cannot be used. No message shows it.
    """
    named, said = os.environ.get(KEY_FILE, "").strip(), os.environ.get(KEY, "").strip()
    if named and said:
        raise InputError(f"{KEY_FILE} and {KEY} both say which key signs evidence: set only one of them")
    if not named and not said:
        return None
    pem = read_private_file(KEY_FILE, "for evidence") if named else said
    return _private_key(pem.encode(), KEY_FILE if named else KEY)


def public_key(path: Path) -> PublicKey:
    """Read the file of a public key.

    Raises
    ------
    InputError
        If it is none.
    """
    _require()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        found = load_pem_public_key(path.read_bytes())
    except OSError as error:
        raise InputError(f"public key {path} cannot be read: {error.strerror}. Name another file") from error
    except ValueError as error:
        raise InputError(f"public key {path}: expected a public key as PEM, found another file") from error
    if not isinstance(found, Ed25519PublicKey):
        raise InputError(f"public key {path}: expected a key for Ed25519, found {type(found).__name__}")
    return PublicKey(found)


def write_key_pair(private: Path, public: Path) -> str:
    """Make a new pair of keys in two new files, and return its id.

    Raises
    ------
    InputError
        If one of the files exists.
    """
    _require()
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    text = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    open_text = key.public_key().public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo)
    for path, content, mode in ((private, text, 0o600), (public, open_text, 0o644)):
        try:
            write_new(path, content, mode=mode)
        except FileExistsError:
            raise InputError(f"{path} exists. A key is never overwritten: name another file") from None
    return _key_id(key.public_key())


def _private_key(pem: bytes, source: str) -> SigningKey:
    _require()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        found = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError):
        # Without its cause, which may quote the text.
        raise InputError(
            f"{source}: expected a private key as PEM without a password; `statestore evidence key`"
        ) from None
    if not isinstance(found, Ed25519PrivateKey):
        raise InputError(f"{source}: expected a key for Ed25519, found {type(found).__name__}")
    return SigningKey(found)


def _key_id(key: Ed25519PublicKey) -> str:
    return hashlib.sha256(key.public_bytes_raw()).hexdigest()


def _require() -> None:
    require_extra("evidence", "evidence")
