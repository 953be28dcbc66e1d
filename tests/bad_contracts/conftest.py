"""The project of the broken contracts is read by lint, and no test of ours."""

collect_ignore = ["project"]
