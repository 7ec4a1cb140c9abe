"""A user's description of stores that directories and topics do not show.

--store NAME                          verify or restore this store
--store NAME:kind=window,...          the same, and what it is (settings as in `Hint`)
--changelog NAME=TOPIC                its changelog has a name of its own
--retention NAME=DURATION             how long it keeps windows, sessions or earlier values
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator

from statestore import clock
from statestore.errors import InputError
from statestore.kinds.known import BUILT_IN, is_built_in
from statestore.model import StoreFormat, StoreSelector
from statestore.partition.spec import GlobalKind

#: Kafka's topic names; unlike a store's, they may start with any of the characters.
_TOPIC = r"^[a-zA-Z0-9._-]{1,249}$"


def _check_kind(text: str) -> str:
    if not is_built_in(text):
        raise ValueError(f"expected one of {', '.join(BUILT_IN)}")
    return text


class Hint(BaseModel):
    """Description of one store by the user; None if not given.

    Attributes
    ----------
    engine
        `in_memory`: the store is not on disk, so there is nothing to verify or restore.
    retention_ms
        How long windows or sessions are kept, or earlier values of a versioned store.
    segment_interval_ms
        How long segments of a versioned store are, if its application says it.
    subtopology
        The first number of its tasks' ids.
    global_kind
        Said as `global`: it is a global store, and how it is filled.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    kind: Annotated[str, AfterValidator(_check_kind)] | None = None
    format: StoreFormat | None = None
    retention_ms: int | None = Field(default=None, ge=1, lt=1 << 63)
    segment_interval_ms: int | None = Field(default=None, ge=1, lt=1 << 63)
    subtopology: int | None = Field(default=None, ge=0, lt=1_000_000_000)
    engine: Literal["rocksDB", "in_memory"] | None = None
    changelog: str | None = Field(default=None, pattern=_TOPIC)
    global_kind: GlobalKind | None = Field(default=None, alias="global")

    @field_validator("retention_ms", "segment_interval_ms", mode="before")
    @classmethod
    def _read_duration(cls, value: object) -> object:
        return clock.whole_ms(value) if isinstance(value, str) else value

    @property
    def description(self) -> str:
        """Description of the store's layout; empty if not given."""
        said = {"kind": self.kind, "format": self.format}
        return ", ".join(f"{name}={value}" for name, value in said.items() if value is not None)


def parse_hints(stores: Iterable[str], changelogs: Iterable[str], retentions: Iterable[str]) -> dict[str, Hint]:
    """Read the options; a store that is only named has an empty hint.

    Raises
    ------
    InputError
        If one is malformed, or something is set twice; the message tells what was expected.
    """
    said: dict[str, dict[str, str]] = {}

    def say(name: str, setting: str, value: str, text: str) -> None:
        settings = said.setdefault(_name(name, text), {})
        if setting in settings:
            raise InputError(f"{text!r}: {setting} of store {name} is set twice")
        settings[setting] = value

    for text in stores:
        name, _, settings = text.partition(":")
        said.setdefault(_name(name, text), {})
        for item in settings.split(",") if settings else ():
            setting, equals, value = item.partition("=")
            if not equals:
                raise InputError(f"{text!r}: expected NAME or NAME:setting=value,..., found {item!r}")
            say(name, setting, value, text)
    for option, setting, texts in (
        ("STORE=TOPIC", "changelog", changelogs),
        ("STORE=DURATION", "retention_ms", retentions),
    ):
        for text in texts:
            name, equals, value = text.partition("=")
            if not equals:
                raise InputError(f"{text!r}: expected {option}")
            say(name, setting, value, text)
    return {name: _hint(name, settings) for name, settings in said.items()}


def _name(name: str, text: str) -> str:
    selector = StoreSelector.parse(name)
    if selector.parts:
        raise InputError(f"{text!r}: expected a store, found a partition of it; settings are of the whole store")
    return selector.store


def _hint(name: str, settings: dict[str, str]) -> Hint:
    try:
        return Hint.model_validate(settings)
    except ValidationError as error:
        known = ", ".join(field.alias or name for name, field in Hint.model_fields.items())
        problems = "; ".join(
            f"{problem['loc'][0]}: {problem['msg']}, found {problem['input']!r}" for problem in error.errors()
        )
        raise InputError(f"store {name}: {problems}; the settings are: {known}") from error
