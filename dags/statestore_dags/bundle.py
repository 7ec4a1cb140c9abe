"""The DAG files of the installed package as a DAG bundle of Airflow."""

from __future__ import annotations

from typing import Any

from airflow.dag_processing.bundles.local import LocalDagBundle

from statestore.packages import files_of


class StateStoresDagBundle(LocalDagBundle):
    """The DAG files that came with this package; its class path is all that Airflow's configuration needs.

    Examples
    --------
    An item of `dag_bundle_config_list`::

        {"name": "state-stores", "classpath": "statestore_dags.bundle.StateStoresDagBundle", "kwargs": {}}
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(path=str(files_of("statestore_dags", inside="dags", beside=".")), **kwargs)
