"""Draw a terminal session as an animated SVG: commands are typed word by word, and their output follows.

The picture follows the reader's theme. Without animation (printed, or with reduced motion) it shows the whole session.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

from rich.console import Console
from rich.style import Style
from rich.text import Text

from statestore.errors import InputError

_FONT_PX, _CHARACTER_PX, _LINE_PX, _MARGIN_PX, _BAR_PX = 12, 7.2, 16, 16, 26
_BEFORE_S, _WORD_S, _AFTER_S, _END_S = 1.0, 0.12, 2.5, 8.0
#: A command that ran longer is shown as if it ran for this time.
_LONGEST_S = 2.0
_PROMPT = "$ "
#: By their numbers, from 1 on; a bright colour is the same.
_COLORS = ("red", "green", "yellow", "blue", "magenta", "cyan")
#: Anything but colours: a terminal would move its cursor.
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-ln-z]|[\x00-\x08\x0b-\x1a\x1c-\x1f]")
_STYLE = """\
.screen { fill: #f6f8fa; stroke: #d0d7de } .dot { fill: #d0d7de } text { fill: #1f2328; white-space: pre }
.prompt, .comment { fill: #57606a } .bold { font-weight: 600 } .italic { font-style: italic } .dim { fill: #57606a }
.red { fill: #cf222e } .green { fill: #1a7f37 } .yellow { fill: #9a6700 }
.blue { fill: #0969da } .magenta { fill: #8250df } .cyan { fill: #1b7c83 }
@media (prefers-color-scheme: dark) {
  .screen { fill: #161b22; stroke: #3d444d } .dot { fill: #3d444d } text { fill: #f0f6fc }
  .prompt, .comment, .dim { fill: #9198a1 }
  .red { fill: #ff7b72 } .green { fill: #3fb950 } .yellow { fill: #d29922 }
  .blue { fill: #4493f8 } .magenta { fill: #ab7df8 } .cyan { fill: #39c5cf }
}
@media (prefers-reduced-motion: reduce) { .event { animation: none !important } }
"""


class Command(NamedTuple):
    """A command of a session, and what a terminal showed.

    Attributes
    ----------
    text
        The command, or a comment that begins with `#`.
    output
        Its output with ANSI colours.
    seconds
        How long it ran.
    """

    text: str
    output: str = ""
    seconds: float = 0.0


class _Event(NamedTuple):
    """What appears at one moment: SVG elements."""

    at_s: float
    elements: str


def draw(session: Sequence[Command], columns: int, title: str, description: str) -> str:
    """Return a session as SVG.

    Parameters
    ----------
    columns
        Width of the terminal.
    title, description
        What a screen reader reads.

    Raises
    ------
    InputError
        If an output moves the cursor, or a line is wider than the terminal.
    """
    events, now_s, line = [], 0.0, 0
    for command in session:
        now_s += _BEFORE_S
        typed = list(_typed(command.text, line))
        events += [_Event(now_s + number * _WORD_S, element) for number, element in enumerate(typed)]
        now_s += len(typed) * _WORD_S + min(command.seconds, _LONGEST_S)
        line += 1
        if output := _lines(command, columns):
            events.append(_Event(now_s, "".join(_drawn(text, line + number) for number, text in enumerate(output))))
            line += len(output) + 1
            now_s += _AFTER_S
    width, height = columns * _CHARACTER_PX + 2 * _MARGIN_PX, _BAR_PX + line * _LINE_PX + _MARGIN_PX
    total_s = now_s + _END_S
    rules = "".join(_keyframes(number, event, total_s) for number, event in enumerate(events))
    groups = "\n".join(f'<g class="event e{number}">{event.elements}</g>' for number, event in enumerate(events))
    dots = "".join(f'<circle class="dot" cx="{18 + 16 * number}" cy="15" r="5"/>' for number in range(3))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" font-size="{_FONT_PX}" '
        "font-family=\"ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace\" "
        'role="img" aria-labelledby="title description">\n'
        f'<title id="title">{escape(title)}</title>\n<desc id="description">{escape(description)}</desc>\n'
        f"<style>\n{_STYLE}{rules}</style>\n"
        f'<rect class="screen" x="0.5" y="0.5" width="{width - 1:.0f}" height="{height - 1}" rx="8"/>\n{dots}\n'
        f"{groups}\n</svg>\n"
    )


def _keyframes(number: int, event: _Event, total_s: float) -> str:
    share = 100 * event.at_s / total_s
    return (
        f".e{number} {{ animation: e{number} {total_s:.1f}s step-end infinite }} "
        f"@keyframes e{number} {{ 0% {{ visibility: hidden }} {share:.2f}% {{ visibility: visible }} }}\n"
    )


def _typed(text: str, line: int) -> Iterator[str]:
    """Yield the prompt with the first word, and every further word."""
    if text.startswith("#"):
        yield _element(0, line, text, "comment")
        return
    for found in re.finditer(r"\S+", text):
        prompt = _element(0, line, _PROMPT, "prompt") if found.start() == 0 else ""
        yield prompt + _element(len(_PROMPT) + found.start(), line, found[0], "bold")


def _lines(command: Command, columns: int) -> list[Text]:
    """Return the lines of an output, without the spaces at their ends."""
    output = command.output.replace("\r\n", "\n")
    if found := _CONTROL.search(output):
        raise InputError(f"the output of `{command.text}` moves the cursor: {found[0]!r}; expected colours only")
    lines = [Text.from_ansi(line) for line in output.splitlines()]
    for line in lines:
        line.rstrip()
        if line.cell_len > columns:
            raise InputError(f"`{command.text}` printed a line of {line.cell_len} columns, expected at most {columns}")
    return lines


def _drawn(text: Text, line: int) -> str:
    """Return a line of output: one element for each of its styles, on the terminal's grid."""
    column, elements = 0, []
    for piece, style, _ in text.render(Console(color_system="standard")):
        shown = piece.strip(" \n")
        if shown:
            start = column + len(piece) - len(piece.lstrip(" "))
            elements.append(_element(start, line, shown, "" if style is None else _classes(style)))
        column += len(piece)
    return "".join(elements)


def _classes(style: Style) -> str:
    found = [name for name in ("bold", "italic", "dim") if getattr(style, name)]
    number = None if style.color is None else style.color.number
    if number is not None and number < 16 and number % 8 in range(1, len(_COLORS) + 1):
        found.append(_COLORS[number % 8 - 1])
    return " ".join(found)


def _element(column: int, line: int, text: str, classes: str) -> str:
    x, y = _MARGIN_PX + column * _CHARACTER_PX, _BAR_PX + (line + 1) * _LINE_PX
    # Fonts differ in width: each piece is as wide as its columns.
    size = f' textLength="{len(text) * _CHARACTER_PX:.1f}" lengthAdjust="spacingAndGlyphs"' if len(text) > 1 else ""
    styled = f' class="{classes}"' if classes else ""
    return f'<text x="{x:.1f}" y="{y}"{size}{styled}>{escape(text)}</text>'
