"""`spark-submit jobs/restore.py`: see `statestore_jobs.restore`."""

from statestore_jobs.restore import main

if __name__ == "__main__":
    main()
