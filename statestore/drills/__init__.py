"""Restore drills: store partitions are restored into scratch space, proven, and removed. Signed evidence remains.

`partition.py` drills one store partition. `choosing.py` and `standing.py` decide which ones, and what their results
mean. `evidence.py` and `chain.py` keep signed documents of the results.
"""
