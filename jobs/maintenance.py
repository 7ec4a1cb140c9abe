"""`spark-submit jobs/maintenance.py`: see `statestore_jobs.maintenance`."""

from statestore_jobs.maintenance import main

if __name__ == "__main__":
    main()
