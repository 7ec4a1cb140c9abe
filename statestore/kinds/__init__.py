"""Kinds of stores, one a file. docs/extending.md tells how to add one."""
