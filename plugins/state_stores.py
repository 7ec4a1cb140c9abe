"""Airflow plugin of the state stores: mounts the pages of `statestore_ui` and adds the menu entry "Data Docs".

Every Airflow process imports this file, each task's too, so it imports nothing but the base class: the pages and
Airflow's API security cost two seconds, and only the API server needs them.
"""

from __future__ import annotations

from typing import Any

from airflow.plugins_manager import AirflowPlugin


async def pages(scope: Any, receive: Any, send: Any) -> None:
    """The ASGI application below /statestore, imported by the first request."""
    from statestore_ui.app import app

    await app(scope, receive, send)


class StateStoresPlugin(AirflowPlugin):
    """What Airflow mounts and shows."""

    name = "state_stores"
    fastapi_apps = [{"app": pages, "url_prefix": "/statestore", "name": "State stores"}]  # noqa: RUF012
    external_views = [  # noqa: RUF012
        {
            "name": "Data Docs",
            "href": "/statestore/docs/",
            "destination": "nav",
            "category": "browse",
            "url_route": "data-docs",
        }
    ]
