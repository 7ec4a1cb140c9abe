"""The pages of the plugin. Airflow puts the plugins folder on `sys.path`, hence a name that nobody else has."""
