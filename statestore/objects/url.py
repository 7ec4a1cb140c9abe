"""URLs that name object storage; nothing is asked, and no client is loaded."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from statestore.errors import InputError

#: Schemes of an archive's URL, and what they are called.
SCHEMES = {"s3": "Amazon S3", "az": "Azure Blob Storage", "gs": "Google Cloud Storage", "file": "a directory"}


def checked_url(url: str) -> str:
    """Return an archive's URL, which has no secrets in it.

    Raises
    ------
    InputError
        If it is not one of an archive.
    """
    parts = urlsplit(url)
    expected = "s3://bucket/prefix, az://account/container/prefix, gs://bucket/prefix or file:///directory"
    if parts.scheme not in SCHEMES or (parts.scheme == "file") != (not parts.netloc):
        found = f"{parts.scheme}://{parts.netloc.split('@')[-1]}{parts.path}" if parts.scheme else parts.path
        raise InputError(f"expected the URL of an archive, such as {expected}; found {found!r}")
    if "@" in parts.netloc or parts.query:
        raise InputError(
            f"the URL of archive {parts.scheme}://{parts.netloc.split('@')[-1]}{parts.path} has credentials or options "
            "in it; set them in the environment"
        )
    if parts.scheme == "az" and not container_and_prefix(parts.path)[0]:
        raise InputError(f"expected az://account/container or az://account/container/prefix, found {url!r}")
    return url.rstrip("/")


def container_and_prefix(path: str) -> tuple[str, str | None]:
    """Return what the path of an Azure URL says; obstore itself takes the account for the container."""
    container, _, prefix = unquote(path).strip("/").partition("/")
    return container, prefix or None
