"""Survey of a cluster: every application that has state on it, and what puts that state at risk."""
