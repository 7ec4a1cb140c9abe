"""`spark-submit jobs/verify.py`: see `statestore_jobs.verify`."""

from statestore_jobs.verify import main

if __name__ == "__main__":
    main()
