"""The tally of a soak, what it is drawn from, and its totals in the documents."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path

import pytest

from tests.faults.plan import LENGTH, campaigns, plan
from tests.faults.soak.running import Asked
from tests.faults.soak.soak import next_campaign
from tests.faults.soak.tally import Campaign, Failure, Tally, TallyError, load_tally, save_tally
from tests.faults.soak.totals import BEGIN, DOCUMENT, END, standing, with_totals

_BEGUN = datetime(2026, 11, 1, 12, tzinfo=UTC)
_FAILURE = Failure(point="before close", error="O1: not the fold", repeat="make soak-campaign SEED=7 CAMPAIGN=1")


def _campaign(number: int, counts: dict[str, int], *, seed: int = 7, failure: Failure | None = None) -> Campaign:
    times = {"started": _BEGUN, "ended": _BEGUN + timedelta(seconds=40)}
    return Campaign(
        kind="kills",
        seed=seed,
        number=number,
        length=3,
        commit="abc",
        tree="a1",
        counts=counts,
        failure=failure,
        **times,
    )


def _tally(*found: Campaign) -> Tally:
    tally = Tally()
    for campaign in found:
        tally = tally.with_campaign(campaign)
    return tally


FULL = _tally(
    _campaign(0, {"task begun": 2, "before close": 1}),
    _campaign(1, {"task begun": 1}, failure=_FAILURE),
    _campaign(0, {"task begun": 3}, seed=8),
)


# -- what is in it ----------------------------------------------------------------------------------------------------


def test_a_tally_is_read_as_it_was_saved(tmp_path: Path) -> None:
    path = tmp_path / "soak" / "tally.json"
    assert load_tally(path) == Tally()
    save_tally(path, FULL)
    assert load_tally(path) == FULL


def test_totals_are_the_sums_by_point_and_the_campaigns_by_seed() -> None:
    totals = FULL.totals["kills"]
    assert {name: (point.count, point.failures) for name, point in totals.points.items()} == {
        "before close": (1, 1),
        "task begun": (6, 0),
    }
    assert (totals.count, totals.failures, totals.campaigns_by_seed) == (7, 1, {7: 2, 8: 1})
    assert (FULL.count("kills", "a1"), FULL.count("kills", "b2"), FULL.count("steps", "a1")) == (7, 0, 0)


def test_no_campaign_is_counted_twice() -> None:
    with pytest.raises(TallyError, match="campaign 1 of kills, seed 7, is in the tally"):
        FULL.with_campaign(_campaign(1, {"task begun": 1}))


def test_a_campaign_that_failed_is_run_again_when_the_code_has_changed_and_then_counts() -> None:
    assert next_campaign(FULL, {"kills": 7}, {}, 7, 3, "a1") is None
    again = next_campaign(FULL, {"kills": 7}, {}, 7, 3, "b2")
    assert again == Asked("kills", 7, 1, 3)
    assert next_campaign(FULL, {"kills": 7}, {again: 7}, 7, 3, "b2") is None
    mended = FULL.with_campaign(_campaign(1, {"task begun": 3}).model_copy(update={"tree": "b2"}))
    assert (mended.totals["kills"].count, mended.totals["kills"].failures) == (9, 0)


def test_what_a_kill_left_of_a_write_is_not_the_tally(tmp_path: Path) -> None:
    path = tmp_path / "tally.json"
    save_tally(path, FULL)
    path.with_name(f".{path.name}.partial").write_text('{"version": 1, "tot')
    assert load_tally(path) == FULL


def _changed(change: Callable[[dict], object]) -> Callable[[Path], object]:
    def damage(path: Path) -> None:
        content = json.loads(path.read_text())
        change(content)
        path.write_text(json.dumps(content))

    return damage


def _twice(content: dict) -> None:
    content["campaigns"].append(content["campaigns"][0])
    content["totals"]["kills"]["count"] += 3


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty": (lambda path: path.write_bytes(b""), "EOF"),
    "cut": (lambda path: path.write_bytes(path.read_bytes()[:-40]), "EOF"),
    "no text": (lambda path: path.write_bytes(b"\xff" + path.read_bytes()), "codec"),
    "a digit": (_changed(lambda content: content["campaigns"][0]["counts"].update({"task begun": 9})), "sums"),
    "a total": (_changed(lambda content: content["totals"]["kills"].update(count=9)), "sums"),
    "a point": (_changed(lambda content: content["totals"]["kills"]["points"].pop("task begun")), "sums"),
    "a campaign gone": (_changed(lambda content: content["campaigns"].pop()), "sums"),
    "a campaign twice": (_changed(_twice), "twice"),
    "a campaign without a seed": (_changed(lambda content: content["campaigns"][2].pop("seed")), "campaigns.2.seed"),
    "a negative count": (_changed(lambda content: content["campaigns"][0]["counts"].update(x=-1)), "greater than"),
    "something unknown": (_changed(lambda content: content.update(more=1)), "more"),
    "a version to come": (_changed(lambda content: content.update(version=2)), "version 2, expected 1"),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_tally_is_refused_and_left_as_it_is(tmp_path: Path, how: str) -> None:
    path = tmp_path / "tally.json"
    save_tally(path, FULL)
    damage, why = DAMAGE[how]
    damage(path)
    damaged = path.read_bytes()
    with pytest.raises(TallyError, match=why) as refused:
        load_tally(path)
    assert str(path) in str(refused.value)
    assert path.read_bytes() == damaged


def test_a_tally_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TallyError, match="Is a directory"):
        load_tally(tmp_path)


# -- what is run next -------------------------------------------------------------------------------------------------


def test_campaigns_of_a_soak_begin_as_those_of_faults() -> None:
    first = plan(7, 2 * LENGTH + 3)
    assert list(islice(campaigns(7), 2)) == first[:2]
    assert list(islice(campaigns(8), 2)) != first[:2]
    assert list(islice(campaigns(7), 30)) == list(islice(campaigns(7), 30))


def test_each_point_is_met_first_once() -> None:
    faults = [fault for campaign in islice(campaigns(7), 30) for fault in campaign.faults]
    met: Counter[object] = Counter(fault.point for fault in faults if fault.first)
    assert set(met.values()) == {1}
    assert met.keys() == {fault.point for fault in faults}


def test_what_is_not_in_the_tally_and_not_under_way_is_run_next() -> None:
    tally = _tally(_campaign(0, {"task begun": 3}), _campaign(2, {"task begun": 3}))
    asked = next_campaign(tally, {"kills": 20}, {}, 7, 3, "a1")
    assert asked == Asked("kills", 7, 1, 3)
    assert next_campaign(tally, {"kills": 20}, {asked: 3}, 7, 3, "a1") == Asked("kills", 7, 3, 3)
    assert next_campaign(tally, {"kills": 20}, {}, 8, 3, "a1") == Asked("kills", 8, 0, 3)


def test_nothing_is_begun_when_what_is_under_way_is_enough() -> None:
    tally = _tally(_campaign(0, {"task begun": 3}))
    assert next_campaign(tally, {"kills": 3}, {}, 7, 3, "a1") is None
    assert next_campaign(tally, {"kills": 6}, {Asked("kills", 7, 1, 3): 3}, 7, 3, "a1") is None
    assert next_campaign(tally, {"kills": 7}, {Asked("kills", 7, 1, 3): 3}, 7, 3, "a1") == Asked("kills", 7, 2, 3)


def test_the_kind_that_is_farthest_from_its_target_is_next() -> None:
    tally = _tally(_campaign(0, {"task begun": 3}))
    assert next_campaign(tally, {"kills": 6, "steps": 1_000}, {}, 7, 3, "a1") == Asked("steps", 7, 0, 3)
    planned = {Asked("steps", 7, 0, 3): 600}
    assert next_campaign(tally, {"kills": 6, "steps": 1_000}, planned, 7, 3, "a1") == Asked("kills", 7, 1, 3)


def test_only_campaigns_of_the_present_files_count_towards_the_target() -> None:
    tally = _tally(_campaign(0, {"task begun": 3}))
    assert next_campaign(tally, {"kills": 3}, {}, 7, 3, "a1") is None
    assert next_campaign(tally, {"kills": 3}, {}, 7, 3, "b2") == Asked("kills", 7, 1, 3)


def test_a_tally_without_hashes_is_read_and_holds_for_no_present_files(tmp_path: Path) -> None:
    path = tmp_path / "tally.json"
    save_tally(path, FULL)
    _changed(lambda content: [campaign.pop("tree") for campaign in content["campaigns"]])(path)
    tally = load_tally(path)
    assert tally.counts_by_tree("kills") == {"": 7}
    assert "with their kills: not recorded (7)" in with_totals(f"{BEGIN}\n{END}", tally, "a1")
    again = next_campaign(tally, {"kills": 7}, {}, 7, 3, "a1")
    assert again == Asked("kills", 7, 1, 3), "it failed with unknown files"


# -- totals in the documents ------------------------------------------------------------------------------------------


def test_totals_are_written_between_the_marks_and_replace_older_ones() -> None:
    text = with_totals(f"before\n{BEGIN}\nolder\n{END}\nafter\n", FULL, "b2")
    assert text.startswith(f"before\n{BEGIN}\n**7 kills in 3 campaigns, 1 of them failed**")
    assert "| before close | 1 | 1 |\n| task begun | 6 | 0 |" in text
    assert "Seeds, with the number of their campaigns: 7 (2), 8 (1). Commits: `abc`.\n" in text
    assert "Hashes of the tested files, with their kills: `a1` (7).\n" in text
    assert "When this was written, the hash was `b2`: 0 of these kills hold for it.\n" in text
    assert text.endswith(f"\n{END}\nafter\n")
    assert "older" not in text
    assert with_totals(text, FULL, "b2") == text


@pytest.mark.parametrize("text", ["", BEGIN, f"{END} {BEGIN}", f"{BEGIN} {BEGIN} {END}", f"{BEGIN} {END} {END}"])
def test_a_document_without_its_marks_is_not_written(text: str) -> None:
    with pytest.raises(TallyError, match="once each"):
        with_totals(text, FULL, "b2")


def test_an_empty_tally_takes_no_totals_away() -> None:
    with pytest.raises(TallyError, match="empty"):
        with_totals(f"{BEGIN}{END}", Tally(), "b2")


def test_what_holds_for_the_present_files_is_told_in_one_line() -> None:
    assert standing(FULL, "a1") == "soak: 7 of 7 kills hold for the present files, a1"
    assert standing(FULL, "b2") == "soak: 0 of 7 kills hold for the present files, b2"
    assert standing(Tally(), "b2") == "soak: nothing is tallied for the present files, b2"


@pytest.mark.documents
def test_the_page_has_the_marks() -> None:
    assert "7 kills" in with_totals(DOCUMENT.read_text(encoding="utf-8"), FULL, "b2")
