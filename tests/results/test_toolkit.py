"""Results depend on the parts of pv that decide what a trial does, and not on its reports."""

from pathlib import Path

from pv.results import store
from pv.source.project import find_project

ROOT = Path(__file__).parents[2]


def test_a_record_that_names_a_report_of_pv_is_not_stale_because_of_it() -> None:
    project = find_project(ROOT)
    now = store.Fingerprint("clause", {})
    then = {"clause": "clause", "files": {"pv/report/text.py": "old", "pv/engines/property.py": "old"}}
    assert store.changed(project, then, now) == ["pv/engines/property.py"]
    assert list(store.digests_of(project, ["pv/report/text.py", "pv/errors.py", "pyproject.toml"])) == [
        "pyproject.toml"
    ]
