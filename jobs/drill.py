"""`spark-submit jobs/drill.py`: see `statestore_jobs.drill`."""

from statestore_jobs.drill import main

if __name__ == "__main__":
    main()
