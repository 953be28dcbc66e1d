"""A package that adds an engine, a suite and a report format to `pv` by entry points."""
