"""Predicates on the observed training."""


def falsify_all_rows_are_scored(run):
    assert [step["scored"] for step in run.trace] == [8] * run.arguments["steps"]
    assert (run.directory / "model.pt").exists()
