"""Shared parts of the DAGs. Airflow puts the DAGs folder on `sys.path`, so the package name must be unique."""

from statestore.packages import require_extra

require_extra("airflow", __name__)
