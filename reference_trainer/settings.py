"""The settings of a distillation: one table for flags, environment, file and library, checked without torch."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from reference_trainer.domain import TEMPERATURES
from reference_trainer.errors import SettingError

__all__ = ["Kind", "Settings", "kind_of", "shown"]


@dataclass(frozen=True, slots=True)
class Kind:
    """What a setting may be: in words, as text from a flag or the environment, and as a value.

    `read` raises ValueError for text that is no such value; `holds` says whether a value is allowed.
    """

    allowed: str
    read: Callable[[str], Any]
    holds: Callable[[Any], bool]
    metavar: str


def _read_integer(text: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,18}", text):
        raise ValueError(text)
    return int(text)


def _read_number(text: str) -> float:
    if not re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", text):
        raise ValueError(text)
    return float(text)


def _read_switch(text: str) -> bool:
    if text not in ("0", "1", "false", "true"):
        raise ValueError(text)
    return text in ("1", "true")


def _read_path(text: str) -> Path:
    if not text:
        raise ValueError(text)
    return Path(text)


def _integer(low: int, allowed: str) -> Kind:
    return Kind(allowed, _read_integer, lambda value: type(value) is int and low <= value < 10**18, "N")


def _number(low: float, high: float, allowed: str) -> Kind:
    return Kind(allowed, _read_number, lambda value: type(value) in (int, float) and low <= value <= high, "X")


def _choice(*names: str) -> Kind:
    return Kind(", ".join(names[:-1]) + f" or {names[-1]}", str, lambda value: value in names, "|".join(names))


def _is_device(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"auto|cpu|cuda(:[0-9]{1,3})?", value) is not None


def _is_path(value: Any) -> bool:
    return isinstance(value, Path) and "\0" not in str(value)


def _is_width(value: Any) -> bool:
    return type(value) is int and 16 <= value <= 65536 and value % 16 == 0


_COUNT = _integer(1, "a positive decimal integer below 10^18")
_COUNT_OR_0 = _integer(0, "a decimal integer from 0 to 10^18")
_WEIGHT = _number(0, 1e30, "a number from 0 to 1e30")
_WIDTH = Kind("a multiple of 16, from 16 to 65536", _read_integer, _is_width, "N")
_PATH = Kind("a path", _read_path, _is_path, "PATH")
_SWITCH = Kind("true or false (1 or 0)", _read_switch, lambda value: type(value) is bool, "")


def _setting(kind: Kind, default: Any, help: str) -> Any:
    return field(default=default, metadata={"kind": kind, "help": help})


def shown(value: Any) -> str:
    """What a message shows of a value that was given: its beginning, where it is long."""
    try:
        return repr(value)[:80]
    except ValueError:  # Python writes no integer of thousands of digits
        return f"{type(value).__name__} of thousands of digits"


def kind_of(name: str) -> Kind:
    """The kind of a setting."""
    kind: Kind = Settings.__dataclass_fields__[name].metadata["kind"]
    return kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A distillation run. A value outside its domain is a `SettingError` that names it and says what is allowed."""

    data: Path | None = _setting(
        _PATH, None, "Text to learn from, bytes as tokens; don't change it during a run. [default: frozen English text]"
    )
    out: Path = _setting(_PATH, Path("distilled"), "Directory for model.safetensors, config.json and manifest.json.")
    force: bool = _setting(_SWITCH, False, "Write into --out, and over --trace, though something is there.")
    trace: Path | None = _setting(_PATH, None, "File for every lifecycle event, as lines of JSON.")
    teacher: Path | None = _setting(_PATH, None, "Directory of a teacher. [default: one trained on the same text]")
    teacher_steps: int = _setting(_COUNT, 1000, "Steps for which a teacher is trained first, unless it is cached.")
    teacher_layers: int = _setting(_COUNT, 4, "Layers of that teacher.")
    teacher_width: int = _setting(_WIDTH, 128, "Width of that teacher.")
    teacher_cache: Path | None = _setting(_PATH, None, "Where it is kept. [default: reference_trainer in ~/.cache]")
    layers: int = _setting(_COUNT, 2, "Layers of the student.")
    width: int = _setting(_WIDTH, 64, "Width of the student.")
    length: int = _setting(_integer(2, "a decimal integer from 2 to 10^18"), 128, "Bytes in a sequence.")
    batch_size: int = _setting(_COUNT, 16, "Sequences in a batch.")
    epochs: int = _setting(_COUNT, 3, "How often the text is read.")
    max_steps: int | None = _setting(
        _COUNT, None, "End the run after so many steps, and save; --lr keeps to the whole plan."
    )
    smoke: int | None = _setting(_COUNT, None, "Take so many steps, say whether a long run is worth it, write nothing.")
    temperature: float = _setting(
        _number(*TEMPERATURES, "a number from 0.0001 to 10000"), 2.0, "Divides the logits of both models."
    )
    ce_weight: float = _setting(_WEIGHT, 0.3, "Weight of the cross-entropy with the text.")
    kd_weight: float = _setting(_WEIGHT, 0.7, "Weight of the divergence from the teacher.")
    lr: float = _setting(_number(5e-324, 1e6, "a number above 0, up to 1e6"), 3e-3, "Highest learning rate of AdamW.")
    warmup: int = _setting(_COUNT_OR_0, 50, "Steps in which the learning rate rises to --lr.")
    seed: int = _setting(_COUNT_OR_0, 0, "Decides the first weights and the order.")
    device: str = _setting(
        Kind("auto, cpu, cuda or cuda:N", str, _is_device, "DEVICE"),
        "auto",
        "Where to compute; auto is cuda where there is one.",
    )
    dtype: str = _setting(_choice("float32", "float64", "bfloat16"), "float32", "bfloat16: float32 weights, autocast.")
    log_every: int = _setting(_COUNT_OR_0, 10, "Log every so many steps; 0: epochs only.")
    project_to_steps: int = _setting(_COUNT, 50000, "Steps of the long run that --smoke projects the time of.")

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            optional = each.default is None and value is None
            if not optional and not each.metadata["kind"].holds(value):
                raise SettingError(f"{each.name} is {shown(value)}; expected {each.metadata['kind'].allowed}")
        if self.smoke is not None and self.max_steps is not None:
            raise SettingError(
                f"smoke is {self.smoke} and max_steps is {self.max_steps}; expected one of them: a smoke run is cut "
                f"off by its own number, and saves nothing"
            )
        if self.ce_weight == self.kd_weight == 0:
            raise SettingError("ce_weight and kd_weight are both 0; expected one above 0, or nothing is learned")
