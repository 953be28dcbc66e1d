"""Engines try a claim inside a worker and return a record of the trial; the verdict is decided elsewhere."""
