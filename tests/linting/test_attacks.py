"""Parameters that nothing supplies, and results that are ignored."""

from pathlib import Path

import pytest

from tests.linting.test_bindings import findings

DRAW = "draw it, such as `@given(n=st.sampled_from([...]))`"
FIXTURE = "falsifiers get no fixtures: draw it with `@given(n=...)`, or make it in the body or in a helper"
FOLDER = "falsifiers get no fixtures: use `with tempfile.TemporaryDirectory() as tmp_path:`"

BAD = {
    "@pytest.mark.parametrize('n', [1, 2])\ndef attack(subject, n): assert n\n": ("PV114", DRAW),
    "def attack(subject, n): assert n\n": ("PV114", FIXTURE),
    "def attack(subject, tmp_path): assert tmp_path\n": ("PV114", FOLDER),
    "@given(m=st.integers())\ndef attack(subject, m, n): assert n\n": ("PV114", FIXTURE),
    "@given(st.integers())\ndef attack(subject, n, m): assert n\n": ("PV114", FIXTURE),
    "def attack(subject): return subject.double(1) == 2\n": ("PV115", "write `assert subject.double(1) == 2`"),
}

GOOD = [
    "@given(n=st.integers())\ndef attack(subject, n): assert n\n",
    "@given(st.integers())\ndef attack(subject, n): assert n\n",
    "@hypothesis.given(n=st.integers())\n@settings(max_examples=3)\ndef attack(subject, n): assert n\n",
    "@given(**strategies)\ndef attack(subject, n): assert n\n",
    "def attack(subject, n=2, *, device='cpu'): assert n\n",
    "def attack(subject):\n    def inner(): return 1\n    if subject: return\n    assert inner()\n    return None\n",
]


@pytest.mark.parametrize("test", BAD)
def test_claim_that_would_not_be_checked_is_refused_with_what_to_write(tmp_path: Path, test: str) -> None:
    assert findings(tmp_path, test) == [BAD[test]]


SILENT = [
    "def attack(subject): subject.double(1) == 2\n",
    "def attack(subject): torch.equal(subject.double(1), 2)\n",
    "@given(n=st.integers())\ndef attack(subject, n): compared(n)\ndef compared(n): return n == 2\n",
    "from hypothesis import note\ndef attack(subject): note(subject.double(1))\n",
]
ASSERTED = [
    "def attack(subject): torch.testing.assert_close(subject.double(1), 2)\n",
    "def attack(subject): compared(subject.double(1))\ndef compared(n):\n    if n != 2: raise ValueError(n)\n",
    "from helpers import compared\ndef attack(subject): compared(subject.double(1), 2)\n",
    "def attack(subject):\n    with pytest.raises(ValueError): subject.double('a')\n",
    "def attack(subject):\n    cases = Cases()\n    cases.run(subject)\nclass Cases:\n    def run(self, s): assert s\n",
]


@pytest.mark.parametrize("test", SILENT)
def test_falsifier_that_asserts_nothing_is_noticed(tmp_path: Path, test: str) -> None:
    assert findings(tmp_path, test) == [("PV204", "assert the prediction")]


@pytest.mark.parametrize("test", ASSERTED)
def test_falsifier_that_may_assert_elsewhere_is_not_noticed(tmp_path: Path, test: str) -> None:
    assert findings(tmp_path, test) == []


@pytest.mark.parametrize("test", GOOD)
def test_falsifier_whose_parameters_are_supplied_has_no_finding(tmp_path: Path, test: str) -> None:
    assert findings(tmp_path, test) == []
