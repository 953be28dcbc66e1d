"""Results depend on the parts of pv that decide what a trial does, and not on its reports."""

from pathlib import Path

import pytest

from pv.results import store, toolkit
from pv.source.project import find_project

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("name", "counted"),
    [
        ("engines/property.py", True),
        ("engines/kinds/run.py", True),
        ("workers/worker.py", True),
        ("mutation/operators.py", True),
        ("report/text.py", False),
        ("results/outcome.py", False),
        ("commands/validate.py", False),
        ("linting/mutants.py", False),
        ("__init__.py", False),
        ("cli/group.py", False),
    ],
)
def test_only_rooms_that_decide_what_a_trial_does_count(name: str, counted: bool) -> None:
    assert (toolkit.PACKAGE / name).is_file()
    assert toolkit.counts(toolkit.PACKAGE / name) is counted


def test_files_of_a_project_count() -> None:
    assert toolkit.counts(ROOT / "reference_trainer/cli/group.py") and toolkit.counts(ROOT / "pyproject.toml")


def test_every_named_room_exists() -> None:
    assert all((toolkit.PACKAGE / room / "__init__.py").is_file() for room in toolkit.ROOMS)


def test_a_record_that_names_a_report_of_pv_is_not_stale_because_of_it() -> None:
    project = find_project(ROOT)
    now = store.Fingerprint("clause", {})
    then = {"clause": "clause", "files": {"pv/report/text.py": "old", "pv/engines/property.py": "old"}}
    assert store.changed(project, then, now) == ["pv/engines/property.py"]
    assert list(store.digests_of(project, ["pv/report/text.py", "pv/errors.py", "pyproject.toml"])) == [
        "pyproject.toml"
    ]
