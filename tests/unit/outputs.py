"""An output of a topology that is read by the test."""

from __future__ import annotations


class Lists:
    """Where a topology's records go, in lists."""

    def __init__(self):
        self.sent, self.logged = [], []

    def send_many(self, records):
        self.sent += records

    def log_many(self, store, keys, values, timestamps, headers=None, count=None):
        self.logged += [(store, *row) for row in zip(keys, values, timestamps, strict=True)][:count]
