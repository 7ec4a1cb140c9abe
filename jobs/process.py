"""`spark-submit jobs/process.py`: see `statestore_jobs.process`."""

from statestore_jobs.process import main

if __name__ == "__main__":
    main()
