"""The systems that ours stands beside, and what they need to run: fetched on demand, pinned, below build/ or cached."""
