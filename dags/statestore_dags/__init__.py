"""The parts that the DAGs share. Airflow puts the DAGs folder on `sys.path`, hence a name that nobody else has."""

from statestore.packages import require_extra

require_extra("airflow", __name__)
