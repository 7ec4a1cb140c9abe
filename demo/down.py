"""`make down`: stop what `make up` left running, also what remains of it after a part has died. Data stays."""

from __future__ import annotations

from demo.console import console, run
from demo.installation import Installation
from demo.processes import stop_run
from demo.up import UP


def down() -> int:
    """Stop everything that carries the marker of the last `make up`."""
    with Installation(UP).exclusive():
        if stop_run(UP):
            console.print(f"Stopped. Data is kept in {UP}; to start over, delete that directory.", soft_wrap=True)
        else:
            console.print("Nothing that `make up` started is running.")
        (UP / "addresses.json").unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    run(down)
