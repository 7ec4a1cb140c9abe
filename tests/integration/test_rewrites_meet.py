"""A rewrite of a store begins only when another one of it has ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from statestore.errors import InputError, InvalidStateError
from tests.integration import dying
from tests.integration.catalogued import CatalogueCommand
from tests.integration.test_reseed import Lost
from tests.integration.transforming import Transforming

pytestmark = pytest.mark.long


@pytest.fixture
def lost(command: CatalogueCommand, tmp_path: Path) -> Lost:
    made = Lost(command, tmp_path)
    made.process()
    return made


def transforming(lost: Lost) -> Transforming:
    return Transforming(lost.app.servers, lost.command.service_id, lost.app.name, lost.app.state_dir, "as_it_is")


@pytest.mark.parametrize("point", ["rewrite, topic in the journal", "rewrite, whole", "rewrite, adopted"])
def test_a_transform_waits_for_the_end_of_a_reseed(lost: Lost, point: str) -> None:
    rows = lost.rows()
    lost.lose()
    lost.die(point)
    with pytest.raises(InvalidStateError, match="a rewrite of the kind reseed was interrupted"):
        transforming(lost).carry_out()
    lost.reseed("--yes")
    lost.assert_whole(rows)
    transforming(lost).carry_out()
    lost.app.definition = lost.command.catalogue.entry(lost.app.name).definition
    lost.assert_whole(rows)


@pytest.mark.parametrize("point", ["rewrite, adopted", "rewrite, store replaced"])
def test_a_reseed_waits_for_the_end_of_a_transform(lost: Lost, point: str) -> None:
    rows = lost.rows()
    dying.die_in(transforming(lost), point)
    assert "a rewrite of the kind transform was interrupted" in lost.refused()
    transforming(lost).carry_out()
    lost.app.definition = lost.command.catalogue.entry(lost.app.name).definition
    lost.lose()
    lost.reseed("--yes")
    lost.assert_whole(rows)


def test_a_transform_that_left_topics_behind_and_is_refused_lets_a_reseed_begin(lost: Lost) -> None:
    rows = lost.rows()
    dying.die_in(transforming(lost), "rewrite, topic in the journal")
    lost.lose()
    assert "a rewrite of the kind transform was interrupted" in lost.refused()
    with pytest.raises(InputError, match="Expected a store that has all of its changelog"):
        transforming(lost).carry_out()
    lost.reseed("--yes")
    lost.assert_whole(rows)
