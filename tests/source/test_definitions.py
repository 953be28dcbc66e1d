"""Definitions across files, and calls of them."""

from pathlib import Path

import pytest

from pv.contract.names import Target
from pv.source.definitions import parameters
from pv.source.project import find_project

LOSSES = """
import functools
import torch

def loss(s, t, /, tau=1.0, *, weight):
    pass

def anything(*parts, **options):
    pass

@torch.no_grad()
def quiet(x):
    pass

@functools.singledispatch
def other(x):
    pass

class Scaler:
    def __init__(self, factor):
        pass
    def scale(self, x):
        pass
    @staticmethod
    def fixed(x):
        pass

class Bare(Scaler):
    pass
"""

CALLS = {
    ("losses:loss", 2, ("weight",)): "",
    ("losses:loss", 2, ()): "lacks 'weight'",
    ("losses:loss", 2, ("weight", "temperature")): "has no parameter 'temperature'",
    ("losses:loss", 3, ("tau", "weight")): "gets 'tau' twice",
    ("losses:loss", 4, ("weight",)): "takes 3 positional arguments, got 4",
    ("losses:anything", 7, ("any",)): "",
    ("losses:Scaler", 0, ()): "lacks 'factor'",
    ("losses:Scaler.scale", 2, ()): "takes 1 positional arguments, got 2",
    ("losses:Scaler.fixed", 1, ()): "",
    ("package:loss", 2, ()): "lacks 'weight'",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "losses.py").write_text(LOSSES)
    (tmp_path / "package").mkdir()
    (tmp_path / "package/__init__.py").write_text("from .inner import loss\nfrom losses import Scaler as renamed\n")
    (tmp_path / "package/inner.py").write_text("from losses import loss\n")
    return tmp_path


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_call_is_checked_against_the_definition(call: tuple[str, int, tuple[str, ...]], project: Path) -> None:
    target, count, keywords = call
    found = parameters(find_project(project), Target.parse(target))
    assert found is not None
    assert found.problem(count, keywords) == CALLS[call]
