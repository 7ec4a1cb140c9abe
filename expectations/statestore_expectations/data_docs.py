"""The stores of Great Expectations: results and suites of all runs, next to the site that is built from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import great_expectations as gx
from great_expectations.data_context import EphemeralDataContext
from great_expectations.data_context.types.base import DataContextConfig, ProgressBarsConfig

SITE = "data_docs"
_RESULTS_SHOWN = 200


def context_of(data_docs_dir: Path) -> EphemeralDataContext:
    """Return a context of this run only, except for what the site's index is made from: suites and results."""

    def kept(directory: str) -> dict[str, Any]:
        return {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(data_docs_dir / directory)}

    def forgotten() -> dict[str, Any]:
        return {"class_name": "InMemoryStoreBackend"}

    config = DataContextConfig(
        analytics_enabled=False,
        progress_bars=ProgressBarsConfig(globally=False),
        expectations_store_name="suites",
        validation_results_store_name="results",
        checkpoint_store_name="checkpoints",
        stores={
            "suites": {
                "class_name": "ExpectationsStore",
                "store_backend": {**kept(".suites"), "filepath_suffix": ".json"},
            },
            "results": {
                "class_name": "ValidationResultsStore",
                "store_backend": {**kept(".results"), "filepath_suffix": ".json"},
            },
            "checkpoints": {"class_name": "CheckpointStore", "store_backend": forgotten()},
            "validation_definition_store": {"class_name": "ValidationDefinitionStore", "store_backend": forgotten()},
        },
        data_docs_sites={
            SITE: {
                "class_name": "SiteBuilder",
                "show_how_to_buttons": False,
                "store_backend": kept("."),
                "site_index_builder": {
                    "class_name": "DefaultSiteIndexBuilder",
                    "validation_results_limit": _RESULTS_SHOWN,
                },
                "site_section_builders": {"profiling": "None"},
            }
        },
    )
    context = gx.get_context(mode="ephemeral", project_config=config)
    assert isinstance(context, EphemeralDataContext)
    return context
