"""From ranges of a log to sorted runs, and from sorted runs to the files of a database."""
