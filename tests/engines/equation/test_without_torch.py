"""A contract about numbers in an environment without PyTorch: `pv validate`, its replay, `pv doctor` and pytest."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.projects import Project


@pytest.fixture
def started(without_torch: Path, project: Project):
    folder = project("rates")

    def start(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(without_torch), "-m", *arguments]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)

    return start


def test_claims_about_numbers_are_judged_and_tensor_claims_name_the_missing_pytorch(started) -> None:
    done = started("pv", "validate")
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    ends = re.findall(r"^([A-Z]+) +(R-\S+) on cpu", done.stdout, re.MULTILINE)
    assert ends == [("FALSIFIED", "R-INVARIANT"), ("ERROR", "R-SLOPE")]
    assert "the invariant `named(x) < 2` of named does not hold here" in done.stdout
    because = "needs PyTorch, which is not installed: run `pip install torch`\n"
    assert f"because   the derivative of named {because}" in done.stdout
    assert "torch is not installed, and claims of this project need it" in started("pv", "doctor").stdout


def test_pytest_collects_and_tries_the_claims(started) -> None:
    done = started("pytest", "-q", "-p", "no:cacheprovider", "contracts")
    assert "2 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "the derivative of named needs PyTorch" in done.stdout
