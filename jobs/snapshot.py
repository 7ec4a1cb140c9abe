"""`spark-submit jobs/snapshot.py`: see `statestore_jobs.snapshot`."""

from statestore_jobs.snapshot import main

if __name__ == "__main__":
    main()
