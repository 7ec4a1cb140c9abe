"""The packages on top of the library: the extra that each needs, and where the files that come with it lie.

Base dependencies carry the library and the command. `statestore_jobs`, `statestore_expectations` and `statestore_dags`
are in every wheel, but what they import comes with an extra of pyproject.toml.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from statestore.errors import MissingExtraError

#: What shows whether an extra is installed.
_MODULES: Mapping[str, tuple[str, ...]] = {
    "spark": ("pyspark",),
    "validate": ("pyspark", "great_expectations", "matplotlib"),
    "airflow": ("airflow", "airflow.providers.apache.spark"),
    "evidence": ("cryptography",),
    "schema": ("fastavro", "httpx2", "authlib", "jsonschema", "google.protobuf"),
    "metrics": ("opentelemetry.sdk.metrics", "opentelemetry.exporter.otlp.proto.http"),
}


def require_extra(extra: str, user: str) -> None:
    """Refuse to go on without an extra, before an import fails.

    Parameters
    ----------
    user
        What needs it, such as a package; for the error.

    Raises
    ------
    MissingExtraError
        Naming the missing modules, and the command that installs them.
    """
    if missing := _missing(extra):
        are = "is" if len(missing) == 1 else "are"
        raise MissingExtraError(
            f"{user} needs {', '.join(missing)}, which {are} not installed. Run: {installation_of(extra)}"
        )


def installation_of(extra: str) -> str | None:
    """Return the command that installs an extra; None if it is installed."""
    return f"pip install 'statestore[{extra}]'" if _missing(extra) else None


def files_of(package: str, inside: str, beside: str) -> Path:
    """Return the directory of the files that come with a package, without importing it.

    Parameters
    ----------
    inside
        Where a wheel has them (`hatch_build.py`), below the package.
    beside
        Where the source tree has them, below the package's parent.
    """
    spec = find_spec(package)
    assert spec is not None, package
    assert spec.submodule_search_locations, package
    root = Path(spec.submodule_search_locations[0])
    installed = root / inside
    return (installed if installed.is_dir() else root.parent / beside).resolve()


def _missing(extra: str) -> list[str]:
    return [module for module in _MODULES[extra] if not _is_installed(module)]


def _is_installed(module: str) -> bool:
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:  # not even its parent is
        return False
    return spec is not None and spec.origin is not None  # a mere directory of that name has none
