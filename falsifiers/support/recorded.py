"""The claims about every training run, for a run that a falsifier has recorded."""

from pathlib import Path
from typing import Any

from pv.suites.training_run.claims import judge
from pv.suites.training_run.run import read_folder


def assert_claims_about_every_run(folder: Path, needed: set[str]) -> Any:
    """Assert that a recorded run passes the claims of `training-run` and tries the claims `needed`; return the run."""
    observed = read_folder(folder, complete=True)
    records = judge(observed)
    assert {name: record.explanation for name, record in records.items() if record.proofs} == {}
    untried = sorted(name for name in needed if not records[name].tried)
    assert not untried, f"the run has no occasion for the claims {untried}"
    return observed
