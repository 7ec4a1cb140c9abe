"""What the property tests print: how many steps were really executed."""

from __future__ import annotations

import pytest
from store_machine import EXECUTED, HAPPENED


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run what counts the steps when they were driven, also in a run that shuffles its tests."""
    items.sort(key=lambda item: item.get_closest_marker("counts_steps") is not None)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was driven, so that nobody has to believe a setting."""
    if EXECUTED:
        terminalreporter.section("stores against their model")
        terminalreporter.write_line(f"{EXECUTED.total():,} steps, {len(EXECUTED)} compositions")
        for (kind, what), count in sorted(HAPPENED.items()):
            terminalreporter.write_line(f"  {kind:10} {what:26} {count:6}")
