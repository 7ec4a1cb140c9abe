"""A command that would read back as another one, or not at all, never reaches the command topic."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from statestore.errors import InvalidCommandError
from statestore.kafka.writer import TransactionalWriter
from statestore.metastore.catalogue import Catalogue
from statestore.metastore.commands import Command, PutApplication
from tests.integration.commands import Service, application, put


def _unchecked(**fields: object) -> PutApplication:
    """A command with a definition that no model has looked at."""
    command = application("weather")
    return command.model_copy(update={"definition": command.definition.model_copy(update=fields)})


BAD: dict[str, Callable[[], Command]] = {
    "reads back as a different one": lambda: _unchecked(commit_interval_ms="1000"),
    "does not read back": lambda: _unchecked(name="../weather"),
    "cannot be written": lambda: _unchecked(processor="\ud800"),
}
every_bad_one = pytest.mark.parametrize("bad", BAD.values(), ids=BAD)


@pytest.mark.behaviour("C6")
@every_bad_one
def test_c6_it_is_refused_before_anybody_is_fenced_or_anything_sent(
    service: Service, monkeypatch: pytest.MonkeyPatch, bad: Callable[[], Command]
) -> None:
    service.submit(put("flights"))
    end, opened = service.log.high_watermark, []
    monkeypatch.setattr(TransactionalWriter, "init", lambda writer: opened.append(writer))
    with pytest.raises(InvalidCommandError, match="put-application command"):
        service.submit(lambda _: bad())
    assert opened == []
    assert service.log.high_watermark == end


@pytest.mark.behaviour("C6")
@every_bad_one
def test_c6_one_that_is_made_after_catching_up_is_aborted_before_it_is_produced(
    service: Service, monkeypatch: pytest.MonkeyPatch, bad: Callable[[], Command]
) -> None:
    service.submit(put("flights"))
    end, produced, made = service.log.high_watermark, [], []
    monkeypatch.setattr(TransactionalWriter, "produce", lambda *given: produced.append(given))

    def make(_: Catalogue) -> Command:
        made.append(bad() if made else application("weather"))
        return made[-1]

    with pytest.raises(InvalidCommandError, match="put-application command"):
        service.submit(make)
    assert (len(made), produced) == (2, [])
    assert service.log.high_watermark == end
    assert service.ids() == [1]
