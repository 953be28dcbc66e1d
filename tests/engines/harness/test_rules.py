"""Rules about harnesses refuse predicates that a proof could not account for. None of them is run."""

from pathlib import Path

import pytest

from pv.contract.finding import Finding
from tests.support.projects import HEAD, linted, write

CONTRACT = f"""{HEAD}subject: subject
falsifiers: []
harnesses:
- {{id: H, rule: r, if_fails: f, predicate: "prove.py::prove", bounds: {{n: 0..9}}, kills: [m]}}
mutants:
- {{id: m, fault: f, edit: {{function: "subject:twice", find: n + n, replace: n}}}}
"""
SUBJECT = """
import functools
import torch
import time
from pathlib import Path

seen = []
LIMITS = {"most": 9}

def twice(n): return n + n
def loaded(n): return torch.tensor(n).item() * 2
def timed(n): return n + n if time.time() else 0
def read(n): return len(Path("x").read_text()) + n
def noted(n):
    seen.append(n)
    return n + n
def counted(n):
    global count
    count = n
    return n
def shared(n, cache={}):
    cache[n] = n + n
    return cache[n]
@functools.cache
def cached(n): return n + n
def bounded(n): return min(n, LIMITS["most"])
class Plain:
    def __init__(self, n):
        self.items = [n]
        self.items.append(n)
    @property
    def total(self):
        return sum(self.items)
def plain(n): return Plain(n).total
def local(n):
    seen = []
    seen.append(n)
    return seen[0]
"""


def findings(folder: Path, predicate: str, contract: str = CONTRACT) -> list[Finding]:
    return linted(folder, {"subject.py": SUBJECT, "prove.py": predicate, "contract.yaml": contract})


@pytest.mark.parametrize("name", ["twice", "bounded", "plain", "local"])
def test_a_pure_function_may_be_proved_whatever_lies_beside_it(tmp_path: Path, name: str) -> None:
    assert findings(tmp_path, f"def prove(subject, n):\n    return subject.{name}(n) is not None\n") == []


@pytest.mark.parametrize(
    ("name", "code", "says"),
    [
        ("loaded", "PV192", "(loaded), which uses torch: no solver can follow it"),
        ("timed", "PV192", "(timed), which uses time: its value depends on the clock"),
        ("read", "PV192", "(read), which uses pathlib.Path: it reads or writes files"),
        ("noted", "PV193", "(noted), which changes 'seen', which outlives the call"),
        ("counted", "PV193", "(counted), which assigns the global 'count'"),
        ("shared", "PV193", "(shared), which changes 'cache[n]', which outlives the call"),
        ("cached", "PV193", "(cached), which keeps its results in a functools.cache"),
    ],
)
def test_impure_code_behind_the_subject_is_refused(tmp_path: Path, name: str, code: str, says: str) -> None:
    (found,) = findings(tmp_path, f"def prove(subject, n):\n    return subject.{name}(n) is not None\n")
    assert found.code == code
    assert says in found.message


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("return open('x')", "uses open()"),
        ("import torch\n    return torch.tensor(n)", "uses torch: no solver"),
        ("import os\n    os._exit(0)", "uses os: it reads"),
        ("from random import random\n    return random() < n", "uses random: its value is random"),
        ("return next(numbers) < n", "changes 'numbers'"),
        ("subject.seen[0] = n", "changes 'subject.seen[0]'"),
    ],
)
def test_what_a_predicate_does_itself_is_refused(tmp_path: Path, body: str, says: str) -> None:
    head = "from itertools import count\nnumbers = count()\n"
    found = findings(tmp_path, f"{head}def prove(subject, n):\n    {body}\n    return True\n")
    assert [says in f.message for f in found] == [True]


@pytest.mark.parametrize(
    ("signature", "says"),
    [
        ("n", "H: prove.py::prove accepts n; add the parameter `subject`"),
        ("subject", "H: prove.py::prove accepts subject; add the parameter `n`"),
        ("subject, n, k", "the parameter `k`, which has no bound; add it to `bounds`, for example k: 0..8"),
    ],
)
def test_a_predicate_takes_the_subject_and_the_bounds(tmp_path: Path, signature: str, says: str) -> None:
    (found,) = findings(tmp_path, f"def prove({signature}):\n    return True\n")
    assert (found.code, str(found).endswith(says)) == ("PV112", True)


@pytest.mark.parametrize("bound", ["0...9", "list of int 0..9"])
def test_a_bound_that_is_none_is_refused_where_it_stands(tmp_path: Path, bound: str) -> None:
    (found,) = findings(tmp_path, "def prove(subject, n): return True\n", CONTRACT.replace("0..9", f'"{bound}"'))
    assert found.code == "PV012"
    assert "expected 0..8, bool, or list of int 0..9, at most 4" in found.message


def test_the_gate_may_name_harnesses_and_only_such_as_there_are(tmp_path: Path) -> None:
    predicate = "def prove(subject, n): return subject.twice(n) == 2 * n\n"
    for required in ("proved", "all", "[H]", "[]"):
        gate = f"qa_gate: {{id: G, name: g, require: {{harnesses: {required}}}}}\n"
        assert findings(tmp_path, predicate, CONTRACT + gate) == []
    (found,) = findings(tmp_path, predicate, CONTRACT + "qa_gate: {id: G, name: g, require: {harnesses: [HH]}}\n")
    assert (found.code, found.hint) == ("PV150", "did you mean 'H'?")


STEPPED = CONTRACT.replace("subject: subject", "subject: pkg.schedule").replace(
    '"subject:twice", find: n + n, replace: n', '"pkg.schedule:rate", find: "1", replace: "2"'
)
OPTIM = """
import time
import torch
class Opt:
    def step(self): return torch.zeros(1)
class Slow(Opt):
    def wait(self): return time.time()
class Holder:
    def __init__(self): self.opt, self.step = None, 1
    def inner(self): return self.step
class Kept(Holder):
    def __init__(self): self.opt = Opt()
def save(path): open(path)
def make() -> Opt: ...
def unknown(): return [Opt][0]()
"""


def stepped(folder: Path, rate: str) -> list[tuple[str, str, str]]:
    package = "from .optim import *\nfrom . import optim, schedule\n"
    schedule = f"import time\nimport pkg\n{rate}\n"
    write(folder, {"pkg/__init__.py": package, "pkg/optim.py": OPTIM, "pkg/schedule.py": schedule})
    found = findings(folder, "def prove(subject, n): return subject.rate(n) >= 1\n", STEPPED)
    found = [each for each in found if each.code != "PV133"]
    return [(f.severity.value, f.code, f.message.partition(" which ")[2].partition(":")[0]) for f in found]


@pytest.mark.parametrize(
    "rate",
    [
        "def rate(step): return step + 1",
        "def rate(n):\n    save = n + 1\n    return save",
        "class Mine:\n    def step(self): return 1\ndef rate(n): return n + Mine().step()",
        "class Mine:\n    def __init__(self): self.step = 1\n    def at(self, n): return n + self.step\n"
        "def rate(n): return Mine().at(n)",
        "def rate(n): return n + 1 if pkg.Holder().inner() else 1",
    ],
)
def test_a_name_that_is_only_like_that_of_impure_code_reaches_nothing(tmp_path: Path, rate: str) -> None:
    assert stepped(tmp_path, rate) == []


@pytest.mark.parametrize(
    ("rate", "says"),
    [
        ("def rate(n): return pkg.Opt().step() + 1", "uses torch"),
        ("def rate(n):\n    from pkg import Opt as O\n    o = O()\n    return o.step() + 1", "uses torch"),
        ("def rate(n):\n    o: 'pkg.Opt' = n\n    return o.step() + 1", "uses torch"),
        ("def rate(n): return pkg.make().step() + 1", "uses torch"),
        ("def rate(n): return pkg.Kept().opt.step() + 1", "uses torch"),
        ("def rate(n): return pkg.Slow().step() + 1", "uses torch"),
        ("class Mine(pkg.Slow):\n    def at(self): return self.wait()\ndef rate(n): return Mine().at()", "uses time"),
    ],
)
def test_a_name_that_resolves_to_impure_code_is_an_error(tmp_path: Path, rate: str, says: str) -> None:
    found = stepped(tmp_path, rate)
    assert ("error", "PV192", says) in found and {severity for severity, _, _ in found} <= {"error", "notice"}


@pytest.mark.parametrize("call", ["pkg.unknown().step()", "n.step()"])
def test_impure_code_behind_an_object_of_unknown_class_is_a_notice(tmp_path: Path, call: str) -> None:
    assert stepped(tmp_path, f"def rate(n): return {call} + 1") == [("notice", "PV192", "uses torch")]
