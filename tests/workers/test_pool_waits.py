"""Workers that wait, and use no core meanwhile, let other tasks start."""

from pathlib import Path

import pytest

import pv
from tests.support.projects import write
from tests.support.workers import shared_workers as shared_workers

CONTRACT = """\
schema: pv/1
metadata: {id: waiting, version: 1.0.0, description: Claims that wait for the last one, references: [none]}
subject: subject
falsifiers:
"""
CLAIM = """\
- id: F-WAITING-{number:03}
  rule: "It ends"
  prediction: "It ends"
  if_fails: "It waits"
  test: falsifiers/falsify_waiting.py::falsify_{act}
  limit: {limit}
"""
SUBJECT = """\
import time
from pathlib import Path

SIGN = Path(__file__).parent / "sign"

def wait():
    while not SIGN.exists():
        time.sleep(0.2)

def sign():
    SIGN.touch()
"""
TESTS = """\
def falsify_wait(subject):
    subject.wait()

def falsify_sign(subject):
    subject.sign()
"""


@pytest.mark.parametrize(("jobs", "limit", "waits"), [(2, 600, "held"), (1, 1, "error")])
def test_waiting_tasks_let_others_start_unless_tasks_run_one_at_a_time(
    empty: Path, jobs: int, limit: int, waits: str
) -> None:
    acts = enumerate(["wait"] * jobs + ["sign"], 1)
    claims = [CLAIM.format(number=number, act=act, limit=limit) for number, act in acts]
    write(empty, {"pyproject.toml": '[tool.pv]\nroots = ["."]\n', "subject.py": SUBJECT})
    write(empty, {"contracts/waiting.yaml": CONTRACT + "".join(claims), "falsifiers/falsify_waiting.py": TESTS})
    (contract,) = pv.validate(jobs=jobs, mutants=False).contracts
    assert [result.outcome.value for result in contract.results] == [waits] * jobs + ["held"]
