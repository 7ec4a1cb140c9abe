"""Airflow plugin of the state stores: the page "State stores", its card on the dashboard, the entry "Data Docs".

Airflow finds it by the entry point of the installed package, or by `state_stores.py` in its plugins folder.

Every Airflow process imports this file, each task's too, so it imports nothing but the base class: the routes and
Airflow's API security cost two seconds, and only the API server needs them.

Page and card are one ES module (`statestore_ui/static/state-stores.js`), which uses the React that Airflow's own page
has loaded: they follow its theme and its router, and nothing is built. A page in an iframe could do neither.
"""

from __future__ import annotations

import sys
from typing import Any

from airflow.plugins_manager import AirflowPlugin

# Without a slash in front: below Airflow's base URL, whatever its path is.
_FILES = "statestore/ui"


async def pages(scope: Any, receive: Any, send: Any) -> None:
    """The ASGI application below /statestore, imported by the first request."""
    from statestore_ui.app import app

    await app(scope, receive, send)


class StateStoresPlugin(AirflowPlugin):
    """What Airflow mounts and shows."""

    name = "state_stores"
    fastapi_apps = [{"app": pages, "url_prefix": "/statestore", "name": "State stores"}]  # noqa: RUF012
    # The module leaves each component on `globalThis`, under the name that is said here.
    react_apps = [  # noqa: RUF012
        {
            "name": "Stores",  # Airflow's menu has no room for more
            "bundle_url": f"{_FILES}/state-stores.js",
            "destination": "nav",
            "nav_top_level": True,
            "url_route": "state-stores",
            "icon": f"{_FILES}/icon.svg",
            "icon_dark_mode": f"{_FILES}/icon-dark.svg",
        },
        {
            "name": "State stores card",
            "bundle_url": f"{_FILES}/state-stores.js",
            "destination": "dashboard",
            "url_route": "state-stores-card",
        },
    ]
    external_views = [  # noqa: RUF012
        {
            "name": "Data Docs",
            "href": "/statestore/docs/",
            "destination": "nav",
            "category": "browse",
            "url_route": "data-docs",
        },
        {
            "name": "Audit records",
            "href": "/statestore/audit",
            "destination": "nav",
            "category": "browse",
            "url_route": "audit-records",
        },
    ]


#: What the entry point names. Airflow loads its plugins folder first; a plugin that came from there is none here, since
#: Airflow would take a second one of its name for an error.
from_package = None if "state_stores" in sys.modules else StateStoresPlugin
