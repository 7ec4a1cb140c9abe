"""A terminal session drawn as SVG: its text, its colours, and what cannot be drawn."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from demo.terminal_svg import Command, draw
from statestore.errors import InputError

TEXT = "{http://www.w3.org/2000/svg}text"


def drawn(*session: Command) -> list[tuple[str | None, str | None]]:
    """Return the text elements of a session, with their classes."""
    found = ElementTree.fromstring(draw(session, 40, "title", "description")).iter(TEXT)
    return [(element.get("class"), element.text) for element in found]


def test_a_command_is_typed_word_by_word_and_its_output_keeps_its_colours():
    assert drawn(Command("# look"), Command("verify --all", "\x1b[1;31mMISSING\x1b[0m a < b\r\n", 0.5)) == [
        ("comment", "# look"),
        ("prompt", "$ "),
        ("bold", "verify"),
        ("bold", "--all"),
        ("bold red", "MISSING"),
        (None, "a < b"),
    ]


@pytest.mark.parametrize(
    ("output", "error"),
    [
        pytest.param("\x1b[?25l", "moves the cursor", id="a cursor that is hidden"),
        pytest.param("one\rtwo", "moves the cursor", id="a line that is written again"),
        pytest.param("x" * 41, "a line of 41 columns, expected at most 40", id="a line that is too wide"),
    ],
)
def test_what_cannot_be_drawn_is_refused(output, error):
    with pytest.raises(InputError, match=error):
        draw([Command("verify", output)], 40, "title", "description")
