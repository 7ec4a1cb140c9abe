"""A store partition: what is known of it, how it is judged, and how it is replaced."""
