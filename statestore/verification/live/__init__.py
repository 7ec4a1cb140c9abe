"""Verifies stores that are in use: nothing is locked, written, or stopped (docs/live-verification.md)."""
