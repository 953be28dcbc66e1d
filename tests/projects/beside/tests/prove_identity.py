"""A script of theirs, and no predicate: nothing imports it."""

raise SystemExit("the script was run")
