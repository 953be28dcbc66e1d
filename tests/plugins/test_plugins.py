"""An engine, a suite and a report format of another package are used by their entry points alone."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.processes import Ended, python

HERE = Path(__file__).parent
ENTRY_POINTS = (HERE / "pv_tables-1.0.dist-info/entry_points.txt").read_text()
TABLE = "table = pv_tables.engine:TableEngine\n"
Run = Callable[..., Ended]


@pytest.fixture
def installed(tmp_path: Path) -> Run:
    """Install the package, copy the project, and return what runs `pv` there."""
    shutil.copytree(HERE, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__", "test_*.py"))
    # For an entry point that has the name of a suite of `pv`.
    shutil.copy(HERE / "pv_tables/doubling/doubling.yaml", tmp_path / "pv_tables/doubling/optimizer.yaml")
    # An entry point is found in the metadata of every folder on the path, as after an installation.
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])

    def run(*arguments: str, entry_points: str = ENTRY_POINTS) -> Ended:
        (tmp_path / "pv_tables-1.0.dist-info/entry_points.txt").write_text(entry_points)
        return python("-m", "pv", *arguments, cwd=tmp_path / "project", PYTHONPATH=path)

    return run


def test_an_engine_and_a_format_of_another_package_are_used(installed: Run) -> None:
    ended = installed("validate", "--format", "tsv")
    assert (ended.returncode, ended.stdout) == (0, "TWICE-001\theld\n"), ended.stderr
    assert "rows" in json.loads(installed("schema").stdout)["properties"]["falsifiers"]["items"]["properties"]


def test_a_wrong_row_falsifies_and_a_wrong_key_is_refused(installed: Run, tmp_path: Path) -> None:
    contract = tmp_path / "project" / "contracts" / "twice.yaml"
    text = contract.read_text()
    contract.write_text(text.replace("[3, 6]", "[3, 9]"))
    ended = installed("validate")
    assert ended.returncode == 1
    assert "row 2: 6, expected 9" in ended.stdout
    contract.write_text(text.replace("[[1, 2], [3, 6]]", "[[1]]"))
    ended = installed("validate")
    assert ended.returncode == 3
    assert "falsifiers[0].rows" in ended.stderr + ended.stdout


def test_a_suite_of_another_package_is_applied(installed: Run) -> None:
    twice = ENTRY_POINTS.replace(TABLE, TABLE * 2)  # an editable install lists a package twice
    assert installed("validate", "doubling", entry_points=twice).returncode == 0
    assert installed("check", "mine:twice", "--suite", "doubling").returncode == 0
    ended = installed("check", "mine:square", "--suite", "doubling", "--format", "tsv")
    assert (ended.returncode, ended.stdout) == (1, "DBL-SUM-001\tfalsified\n"), ended.stderr


@pytest.mark.parametrize(
    ("points", "message"),
    [
        (ENTRY_POINTS.replace(TABLE, f"{TABLE}table = x:Y\n"), "both declare 'table' in pv.engines"),
        (ENTRY_POINTS.replace("TableEngine", "Missing"), "pv-tables 1.0 declares 'table' in pv.engines"),
        (ENTRY_POINTS.replace(":TableEngine", ":TablePayload"), "expected a class of Engine"),
        (ENTRY_POINTS.replace("pv_tables.doubling", "pv_tables.missing"), "no such package"),
        (ENTRY_POINTS.replace("doubling = ", "optimizer = "), "that is a suite of pv"),
    ],
)
def test_an_entry_point_that_cannot_be_used_is_refused_by_name(installed: Run, points: str, message: str) -> None:
    ended = installed("check", "mine:twice", "--suite", "doubling", entry_points=points)
    assert ended.returncode == 3, ended.stderr
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr
