"""The formulas, what implements them, and an attack in this process."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import yaml

pytest.importorskip("torch", reason="equations are evaluated by torch")

import torch

from pv.engines.encoding import decode
from pv.engines.equation import attack
from pv.engines.property import Settings
from pv.evidence import Ending

HERE = Path(__file__).parent


class Foreign:
    """Blames the code under contract for whatever it raises."""

    def ending(self, error: BaseException) -> Ending:
        return Ending.RAISED

    def frames(self, error: BaseException) -> list[str]:
        return []


class Deaf:
    """A stream that nobody reads."""

    def put(self, kind: str, **fields: Any) -> None:
        pass


@pytest.fixture(scope="session")
def formulas() -> dict[str, dict[str, Any]]:
    return yaml.safe_load((HERE / "formulas.yaml").read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def implementations() -> ModuleType:
    spec = importlib.util.spec_from_file_location("implementations", HERE / "implementations.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


Tried = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def tried() -> Tried:
    """Attacks one equation of several; `code` is the subject, or its functions by name."""

    def attack_(equations: Any, name: str, code: Any, *, device: str = "cpu", **how: Any) -> Any:
        subject = SimpleNamespace(**code) if isinstance(code, dict) else code
        settings = Settings(**{"examples": 100, "seed": 0, **how})
        record = attack(equations, name, subject, device, settings, Foreign(), Deaf())
        record["inputs"] = {key: torch.as_tensor(decode(value)) for key, value in record.get("arguments", {}).items()}
        return record

    return attack_
