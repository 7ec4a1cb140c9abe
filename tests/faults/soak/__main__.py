"""Run campaigns until the tally has as many kills as are asked for: `make soak`, see docs/testing.md."""

from __future__ import annotations

import signal
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from statestore.errors import LockedError
from statestore.statedir.lock import locked_file
from tests.faults.plan import LENGTH
from tests.faults.soak.running import Asked
from tests.faults.soak.soak import FAILURES, repeat, soak, tell
from tests.faults.soak.tally import TallyError


def _arguments() -> Namespace:
    parser = ArgumentParser(prog="python -m tests.faults.soak", description=__doc__)
    parser.add_argument("--tally", type=Path, default=Path("build/soak/tally.json"), help="default: %(default)s")
    parser.add_argument(
        "--kills", type=int, default=10_000, help="end when the tally has as many; default: %(default)s"
    )
    parser.add_argument(
        "--steps", type=int, default=20_000, help="and as many steps of features that meet; default: %(default)s"
    )
    parser.add_argument("--seed", type=int, help="default: the last one of the tally, or of the clock")
    parser.add_argument(
        "--length", type=int, default=LENGTH, help="kills, or sequences of steps, of one campaign; default: %(default)s"
    )
    parser.add_argument("--workers", type=int, default=2, help="campaigns beside each other; default: %(default)s")
    parser.add_argument("--failures", type=int, default=FAILURES, help="end after as many; default: %(default)s")
    parser.add_argument("--campaign", type=int, help="run this one alone, and count it nowhere; needs --seed")
    parser.add_argument("--kind", default="kills", help="of that one; default: %(default)s")
    found = parser.parse_args()
    if found.campaign is not None and found.seed is None:
        parser.error("--campaign needs --seed")
    return found


def main() -> int:
    """Run a soak; 0: done and nothing failed, 1: something failed, 2: not begun, 130: interrupted."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts behind itself would ignore Ctrl-C
    asked = _arguments()
    path = asked.tally.absolute()
    try:
        with locked_file(path.with_name("lock"), 0):
            if asked.campaign is not None:
                return repeat(Asked(asked.kind, asked.seed, asked.campaign, asked.length), path.parent)
            targets = {"kills": asked.kills, "steps": asked.steps}
            return int(soak(path, targets, asked.seed, asked.length, asked.workers, asked.failures) > 0)
    except LockedError:
        print(f"Another soak uses {path.parent}. Wait until it ends, or choose another tally.", file=sys.stderr)
    except TallyError as error:
        print(error, file=sys.stderr)
    except KeyboardInterrupt:
        tell("Interrupted. Start it again to go on; campaigns that had not ended are run again.")
        return 130
    return 2


if __name__ == "__main__":
    sys.exit(main())
