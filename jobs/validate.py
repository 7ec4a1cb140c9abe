"""`spark-submit jobs/validate.py`: see `statestore_jobs.validate`."""

from statestore_jobs.validate import main

if __name__ == "__main__":
    main()
