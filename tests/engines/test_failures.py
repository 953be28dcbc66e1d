"""The innermost frame of the project decides whether the subject or the falsifier raised."""

import runpy
import types
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from unittest import SkipTest
from unittest.mock import Mock

import pytest
import torch
from numpy.testing import assert_allclose
from torch.testing import assert_close

from pv.engines.equation.comparison import Refuted
from pv.engines.failures import FailureClassifier, describe_error
from pv.engines.trial import TrialStatus
from pv.errors import BrokenMutant, MutantProblem, NotClaimed
from pv.suites.lr_schedule.suite import Bench

Blamed = tuple[SimpleNamespace, SimpleNamespace, FailureClassifier]
SUBJECT = (
    "def divide(a, b):\n    return a / b\ndef call(function):\n    return function()\n"
    "def asserts():\n    assert False\ndef lacks():\n    import no_such_package\n"
)
FALSIFIER = (
    "def attack(subject):\n    subject.divide(1, 0)\ndef broken():\n    raise KeyError('x')\n"
    "def claim():\n    assert 1 == 2\ndef calls(function, *arguments):\n    return function(*arguments)\n"
)


def load(path: Path, text: str) -> SimpleNamespace:
    path.write_text(text)
    return SimpleNamespace(**runpy.run_path(str(path), run_name=path.stem))


def raised(function: Callable[[], object]) -> BaseException:
    with pytest.raises(BaseException) as caught:
        function()
    return caught.value


@pytest.fixture
def blamed(tmp_path: Path) -> Blamed:
    subject, falsifier = load(tmp_path / "subject.py", SUBJECT), load(tmp_path / "falsifier.py", FALSIFIER)
    return subject, falsifier, FailureClassifier(tmp_path, [str(tmp_path / "subject.py")])


def test_exception_in_the_subject_counts_as_raised_by_it(blamed: Blamed) -> None:
    subject, falsifier, failures = blamed
    error = raised(lambda: falsifier.attack(subject))
    assert failures.status(error) is TrialStatus.RAISED
    frames = [frame.partition(" in ")[2] for frame in failures.frames(error)]
    assert frames == ["attack: subject.divide(1, 0)", "divide: return a / b"]
    deep = raised(lambda: falsifier.calls(falsifier.calls, subject.call, lambda: subject.divide(1, 0)))
    assert [frame.partition(":")[2] for frame in failures.frames(deep)] == [
        "8 in calls: return function(*arguments)",
        "4 in call: return function()",
        "2 in divide: return a / b",
    ]
    installed = compile("assert False", f"{failures.root}/.venv/site-packages/installed.py", "exec")
    assert failures.status(raised(lambda: falsifier.calls(exec, installed))) is TrialStatus.ERROR
    assert failures.relative_path("/elsewhere/library.py") == "/elsewhere/library.py"


def test_innermost_frame_of_the_user_is_neither_of_pv_nor_installed(blamed: Blamed) -> None:
    _, falsifier, failures = blamed
    error = raised(lambda: falsifier.calls(torch.nn.Linear(1, 1), None))
    assert failures.user_frame(error) == "falsifier.py:8 in calls: return function(*arguments)"
    assert failures.user_frame(AssertionError()) == ""
    refused = raised(lambda: falsifier.calls(Bench, lambda optimizer, odd: 0))
    assert [frame.partition(":")[0].rpartition("/")[2] for frame in failures.frames(refused)] == [
        *("falsifier.py", "bench.py", "bench.py")
    ]


# A function whose code belongs to a file outside the project.
LIBRARY = types.FunctionType(compile("assert False", "/elsewhere/library.py", "exec"), {"__name__": "library"})
GUARDED = BrokenMutant(MutantProblem.NOT_LOADED, "it may not")
HERE = pytest.mark.skipif(torch.cuda.is_available(), reason="no device is missing where there is CUDA")


@pytest.mark.parametrize(
    ("call", "status"),
    [
        (lambda subject, falsifier: subject.call(falsifier.broken), TrialStatus.ERROR),
        (lambda subject, falsifier: pytest.skip("no GPU"), TrialStatus.SKIPPED),
        (lambda subject, falsifier: falsifier.claim(), TrialStatus.REFUTED),
        (lambda subject, falsifier: subject.call(falsifier.claim), TrialStatus.REFUTED),
        (lambda subject, falsifier: falsifier.calls(subject.asserts), TrialStatus.RAISED),
        (lambda subject, falsifier: falsifier.calls(assert_close, torch.ones(2), torch.zeros(2)), TrialStatus.REFUTED),
        (lambda subject, falsifier: falsifier.calls(assert_allclose, 1, 2), TrialStatus.REFUTED),
        (lambda subject, falsifier: falsifier.calls(Mock().assert_called_once), TrialStatus.REFUTED),
        (lambda subject, falsifier: falsifier.calls(LIBRARY), TrialStatus.ERROR),
        (lambda subject, falsifier: subject.call(LIBRARY), TrialStatus.RAISED),
        pytest.param(lambda _, falsifier: falsifier.calls(torch.zeros(1).cuda), TrialStatus.ERROR, marks=HERE),
        pytest.param(lambda subject, _: subject.call(torch.zeros(1).cuda), TrialStatus.ERROR, marks=HERE),
        (lambda subject, falsifier: subject.lacks(), TrialStatus.ERROR),
        (lambda subject, falsifier: subject.call(lambda: pytest.fail("no")), TrialStatus.REFUTED),
        (lambda subject, _: subject.call(Mock(side_effect=NotClaimed("no"))), TrialStatus.NOT_CLAIMED),
        (lambda subject, _: subject.call(Mock(side_effect=GUARDED)), TrialStatus.INVALID_MUTANT),
    ],
)
def test_status_depends_on_the_code_that_raised(
    blamed: Blamed, call: Callable[..., object], status: TrialStatus
) -> None:
    """An assertion refutes if it is of the falsifier, or of a library for assertions."""
    subject, falsifier, failures = blamed
    assert failures.status(raised(lambda: call(subject, falsifier))) is status


FAULTS = """
import math

def lacks_a_name(original):
    from json import no_such_name
def lacks_an_attribute(original):
    return math.no_such_name
def calls_the_original(original):
    return original()
def refuses(original):
    raise ImportError("there is no tensorboard")
def calls_it_wrongly(original):
    return original(1, 2, 3)
def refuses_a_type(original):
    raise TypeError("expected a number")
def lacks_a_value(original):
    return None.shape
"""


def test_replacement_with_an_unknown_name_or_wrong_arguments_is_an_invalid_mutant(tmp_path: Path) -> None:
    """What it raises on purpose, or what the code raises that it calls, is a fault."""
    assert FailureClassifier(tmp_path, [], mutated=True).status(NameError("x")) is TrialStatus.INVALID_MUTANT
    assert FailureClassifier(tmp_path, [], mutated=False).status(NameError("x")) is TrialStatus.ERROR
    faults = load(tmp_path / "faults.py", FAULTS)
    subject = load(tmp_path / "subject.py", "import math\ndef asks():\n    return math.no_such_name\n")

    def status(name: str, call: Callable[[], object], *, mutated: bool = True) -> TrialStatus:
        files = [str(tmp_path / "subject.py"), str(tmp_path / "faults.py")]
        failures = FailureClassifier(tmp_path, files, mutated=mutated, replacement=f"faults:{name}" if mutated else "")
        return failures.status(raised(call))

    broken = "lacks_a_name", "lacks_an_attribute", "calls_it_wrongly"
    for name in (*broken, "refuses", "refuses_a_type", "lacks_a_value", "calls_the_original"):
        expected = TrialStatus.INVALID_MUTANT if name in broken else TrialStatus.RAISED
        assert status(name, lambda name=name: getattr(faults, name)(subject.asks)) is expected, name
    assert status("refuses", lambda: faults.lacks_an_attribute(None)) is TrialStatus.RAISED
    assert status("", lambda: faults.lacks_an_attribute(None), mutated=False) is TrialStatus.RAISED


class OwnSkip(SkipTest):
    pass


def test_only_types_of_the_user_are_named() -> None:
    assert describe_error(ValueError("no steps")) == "ValueError: no steps"
    assert describe_error(ValueError()) == "ValueError"
    assert describe_error(OwnSkip("no data")) == "OwnSkip: no data"
    for skip in (SkipTest, pytest.skip.Exception):
        assert describe_error(skip("no device")) == "no device"
    assert describe_error(Refuted("it returned 2")) == "it returned 2"
