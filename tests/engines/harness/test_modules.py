"""A file is read as its definitions and the absolute targets of its imports."""

import ast
from pathlib import Path

from pv.engines.harness.modules import module_of

TEXT = """
from .optim import Opt as Optimizer
from .math import *
import torch.nn as nn
RATE = 1

class Plan:
    def step(self): return RATE
"""


def test_imports_have_absolute_targets() -> None:
    module = module_of("pkg.schedule", Path("pkg/schedule.py"), ast.parse(TEXT))
    assert module.imports["Optimizer"] == "pkg.optim.Opt"
    assert module.imports["nn"] == "torch.nn"
    assert module.stars == ("pkg.math",)


def test_method_belongs_to_its_class_and_is_no_name_of_the_module() -> None:
    module = module_of("pkg.schedule", Path("pkg/schedule.py"), ast.parse(TEXT))
    assert module.names == {"RATE", "Plan"}
    owners = {each.name: each.owner.name if each.owner else None for each in module.definitions}
    assert owners == {"RATE": None, "Plan": None, "step": "Plan"}
