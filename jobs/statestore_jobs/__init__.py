"""The jobs, and the data sources over stores and changelogs."""

from statestore.packages import require_extra

require_extra("spark", __name__)
