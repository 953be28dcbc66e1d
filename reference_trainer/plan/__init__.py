"""The plan of a run: the order of its events, and values that change over its steps."""
