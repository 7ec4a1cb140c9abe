"""Has Airflow find the plugin in its plugins folder; see `statestore_ui.plugin`."""

from statestore_ui.plugin import StateStoresPlugin as StateStoresPlugin
