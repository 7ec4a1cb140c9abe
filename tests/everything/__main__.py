"""Run each suite that is not green for the present tree: `make everything`, see docs/testing.md."""

from __future__ import annotations

import os
import signal
import sys
import time
from argparse import ArgumentParser, Namespace
from functools import partial
from pathlib import Path

from statestore.errors import LockedError
from statestore.statedir.lock import locked_file
from tests.everything.everything import Everything
from tests.everything.results import ResultsError, load_results
from tests.everything.suites import SOAK, SUITES, named
from tests.everything.table import write_document
from tests.everything.tree import ROOT, tree_hash
from tests.faults.soak.tally import TallyError, load_tally
from tests.faults.soak.totals import standing

_WORK = Path("build/everything")


def _arguments() -> Namespace:
    parser = ArgumentParser(prog="make everything", description=__doc__)
    parser.add_argument("--only", default="", help="suites or parts, separated by commas; default: all")
    parser.add_argument("--list", action="store_true", help="show what is green, red, and stale, and run nothing")
    parser.add_argument("--table", action="store_true", help="write the table into docs/testing.md, and run nothing")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of faults; default: from the clock")
    parser.add_argument("--tally", type=Path, default=Path("build/soak/tally.json"), help="default: %(default)s")
    return parser.parse_args()


def main() -> int:
    """Run the suites; 0: all are green, 1: one is not, 2: not started, 130: interrupted."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a process that a shell starts with & would ignore Ctrl-C
    asked = _arguments()
    os.chdir(ROOT)
    try:
        if asked.table:
            write_document(SUITES, load_results())
            return 0
        everything = Everything(named(asked.only.split(",")), asked.seed, _WORK, tell=partial(print, flush=True))
        if asked.list:
            is_green = everything.show()
            print(standing(load_tally(asked.tally), tree_hash(SOAK)))
            return 0 if is_green else 1
        with locked_file(_WORK / "lock", 0):
            return 0 if everything.run() else 1
    except LockedError:
        print("Another `make everything` is running here. Wait until it ends.", file=sys.stderr)
    except (ResultsError, TallyError, ValueError) as error:
        print(error, file=sys.stderr)
    except KeyboardInterrupt:
        print("Interrupted. Start it again to continue with this suite.", file=sys.stderr)
        return 130
    return 2


if __name__ == "__main__":
    sys.exit(main())
