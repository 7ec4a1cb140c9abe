"""The pages of the plugin. Airflow puts the plugins folder on `sys.path`, so the package name must be unique."""
