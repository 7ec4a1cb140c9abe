"""What the API server does for the page, in a process of its own: prints its figures as JSON.

python -m benchmarks.page_program <reports directory>
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from benchmarks.peak_memory import peak_kib

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path += [str(REPOSITORY / "plugins"), str(REPOSITORY / "dags")]


def main(directory: Path) -> dict[str, float]:
    """Measure the first look, one when nothing has changed, a search, and one after a new report of `process`."""
    # What the server has loaded before anybody asks is no part of an answer.
    from statestore_ui.overview import Overviews
    from statestore_ui.partition_pages import Question

    from benchmarks.page_reports import add_process

    figures: dict[str, float] = {}
    overviews = Overviews()

    def look(question: Question) -> float:
        started = time.process_time()
        found = overviews.get(directory, directory / "data-docs")
        answer = json.loads(found.pages.get(question, 0, 200))
        seconds = time.process_time() - started
        if not answer["rows"]:
            raise AssertionError("the page has no rows: its figure would mean nothing")
        return seconds

    figures["first look"] = look(Question())
    figures["nothing new"] = look(Question())
    figures["search"] = look(Question(words=("store-3", "0_7")))
    add_process(directory)
    figures["new report of process"] = look(Question())
    figures["memory"] = peak_kib() / 1024
    return figures


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
