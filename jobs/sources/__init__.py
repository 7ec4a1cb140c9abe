"""Spark data sources over stores and changelogs, one a file; `jobs.sources.register` makes them known to a session."""
