"""Verified snapshots of stores in object storage."""
