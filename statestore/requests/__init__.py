"""Requests to jobs and commands: one model each, from which all interfaces are derived."""
