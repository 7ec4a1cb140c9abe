"""Lets `python -m statestore.cli` stand for `statestore`."""

from statestore.cli.app import main

if __name__ == "__main__":
    main()
