"""Which cases of this directory are the fixed share that `make faults-share` runs, and brokers of a file's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.own_broker import OwnBroker, own_broker_in
from tests.session.choosing import is_chosen

_HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the share; a file without a case in it, or a choice that chooses nothing, ends the collection."""
    cases: Counter[str] = Counter()
    shared: Counter[str] = Counter()
    for item in items:
        if not item.path.is_relative_to(_HERE):
            continue
        test = item.nodeid.partition("[")[0]
        for marker in item.iter_markers("share_for"):
            if _in_share(item, marker, cases[test]):
                item.add_marker(pytest.mark.share)
                shared.update((item.path.name, test))
            else:
                shared.update({test: 0})
        cases[test] += 1
    if any("::" in argument for argument in config.args):  # a part of a file, which has no share to judge
        return
    files = {item.path.name for item in items if item.path.is_relative_to(_HERE)}
    if missing := [name for name in (*sorted(files), *shared) if not shared[name]]:
        raise pytest.UsageError(f"no case is in the share of `make faults-share`: {', '.join(missing)}")


def _in_share(item: pytest.Item, marker: pytest.Mark, case: int) -> bool:
    if not {"why"} <= marker.kwargs.keys() <= {"why", "every"}:
        raise pytest.UsageError(f"{item.nodeid}: expected share_for(*names, every=n, why=...), found {marker}")
    return is_chosen(item, marker, case)


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnBroker]:
    """A broker that the tests of a file may stop and kill."""
    with own_broker_in(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture(scope="module")
def paused_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnBroker]:
    """Another one, which is paused and never killed."""
    with own_broker_in(tmp_path_factory.mktemp("paused-broker"), never_fenced=True) as broker:
        yield broker
