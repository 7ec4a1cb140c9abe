"""The `statestore` command: list, verify and restore stores, and read a key, without Spark and Airflow."""
