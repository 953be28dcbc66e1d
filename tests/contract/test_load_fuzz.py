"""A structure-aware fuzzer: sound contracts with parts deleted, repeated, retyped or respelt.

Whatever comes out, loading and lint return, and each refusal names a path, a line and a column.
"""

import copy
from collections.abc import Callable
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pv.contract.finding import Severity
from pv.contract.load import load
from pv.linting import lint
from pv.source.project import find_project
from tests.support.projects import BAD

ROOT = Path(__file__).parents[2]
SMALL = (BAD / "good.yaml").read_text(encoding="utf-8")
RUN = (BAD / "PV145.yaml").read_text(encoding="utf-8")
EXISTING = (ROOT / "tests" / "corpus" / "provable-contracts" / "softmax-kernel-v1.yaml").read_text(encoding="utf-8")
PROJECT = find_project(BAD / "project")

Key = str | int
ODD = ["", "\0", "\u2028", "\x85", "\ufeff", "\x1b", "é", "\U0001f600", "a\nb", "- x"]
ODD += ["{", "*a", "&a", "!t", "%", "...", "~", "'"]
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**400), 10**400),
    st.floats(),
    st.sampled_from([*ODD, "all", "cuda", "tiny", "tiny:double", "../x.py::f", "x.py::f", "a" * 300]),
    st.text(max_size=8),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)


def places(tree: Any, path: tuple[Key, ...] = ()) -> list[tuple[Key, ...]]:
    """The path of every value in the tree but the root."""
    pairs = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [place for key, value in pairs for place in ((*path, key), *places(value, (*path, key)))]


def delete(draw: st.DrawFn, inside: Any, key: Key) -> None:
    del inside[key]


def repeat(draw: st.DrawFn, inside: Any, key: Key) -> None:
    again = copy.deepcopy(inside[key])
    if isinstance(inside, list):
        inside.insert(draw(st.integers(0, len(inside))), again)
    else:
        inside[f"{key}{draw(st.sampled_from(ODD))}"] = again


def retype(draw: st.DrawFn, inside: Any, key: Key) -> None:
    inside[key] = draw(VALUES)


def respell(draw: st.DrawFn, inside: Any, key: Key) -> None:
    text = str(inside[key])
    at = draw(st.integers(0, len(text)))
    inside[key] = text[:at] + draw(st.sampled_from(ODD) | st.characters(codec="utf-8")) + text[at:]


CHANGES: list[Callable[[st.DrawFn, Any, Key], None]] = [delete, repeat, retype, respell]


@st.composite
def spoilt_trees(draw: st.DrawFn, text: str) -> bytes:
    """The contract with one to four of its nodes changed: one, mostly, so that the rest is still read."""
    tree = yaml.safe_load(text)
    # One change mostly, so that the remaining nodes are still read.
    for _ in range(draw(st.sampled_from([1, 1, 1, 2, 4]))):
        path = draw(st.sampled_from(places(tree) or [()]))
        if path:
            draw(st.sampled_from(CHANGES))(draw, reduce(getitem, path[:-1], tree), path[-1])
    flow = draw(st.sampled_from([None, True, False]))
    spoilt = yaml.safe_dump(tree, allow_unicode=True, sort_keys=False, default_flow_style=flow)
    return spoilt.encode("utf-8", "surrogatepass")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "contract.yaml"


# Fixed examples: a change must not fail for what another one would have found. CI's machines are slow, not wrong.
@settings(max_examples=100, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(data=st.sampled_from([SMALL, RUN, EXISTING]).flatmap(spoilt_trees))
def test_a_contract_with_spoilt_nodes_is_answered(file: Path, data: bytes) -> None:
    """Each finding is at a place, and a refused file yields no contract."""
    file.write_bytes(data)
    loaded = load([file])
    for finding in (*loaded.findings, *lint(loaded.contracts, project=PROJECT)):
        assert finding.location.path == file
        assert finding.location.line >= 1 and finding.location.column >= 1
        assert finding.message and "\n" not in str(finding)
    assert bool(loaded.contracts) != any(finding.severity is Severity.REFUSAL for finding in loaded.findings)
