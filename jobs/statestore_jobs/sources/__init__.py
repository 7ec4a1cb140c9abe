"""Spark data sources over stores and changelogs, one a file; `register` makes them known to a session."""
