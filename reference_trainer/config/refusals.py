"""The messages about settings that are refused: name, value, origin, and the values that are allowed."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from reference_trainer.config.kinds import kind_of
from reference_trainer.errors import SettingError

__all__ = ["ELSEWHERE", "SourcedValue", "choices", "origin", "refusal", "short_repr", "suggestion", "unknown_variable"]


ELSEWHERE = {
    "alpha": "kd_weight",
    "block_size": "length",
    "context_length": "length",
    "dataset": "data",
    "eval_steps": "eval_every",
    "grad_clip": "clip",
    "gradient_accumulation_steps": "accumulate",
    "gradient_clip_val": "clip",
    "hidden_size": "width",
    "learning_rate": "lr",
    "logging_steps": "log_every",
    "max_grad_norm": "clip",
    "max_length": "length",
    "max_seq_length": "length",
    "n_layers": "layers",
    "num_epochs": "epochs",
    "num_hidden_layers": "layers",
    "num_layers": "layers",
    "num_train_epochs": "epochs",
    "output": "out",
    "output_dir": "out",
    "overwrite_output_dir": "force",
    "per_device_train_batch_size": "batch_size",
    "precision": "dtype",
    "resume_from_checkpoint": "resume",
    "save_steps": "save_every",
    "save_total_limit": "keep",
    "seq_len": "length",
    "seq_length": "length",
    "train_batch_size": "batch_size",
    "warmup_steps": "warmup",
}
"""Settings by the names that they have in other trainers."""
MOST_SHOWN = 8
"""The most settings that one message names."""


@dataclass(frozen=True, slots=True)
class SourcedValue:
    """A value as a flag, a variable or the file gives it, and the place that gives it, such as `--smoke`."""

    value: Any
    origin: str
    is_text: bool = True


def origin(name: str, value: Any) -> str:
    """Return the place that gives a setting; the setting's name if the value comes from a Python call."""
    return value.origin if isinstance(value, SourcedValue) else repr(name)


def short_repr(value: Any) -> str:
    """Return the `repr` of a value, cut off after 80 characters."""
    try:
        return repr(value)[:80]
    except ValueError:  # Python refuses to print integers of more than 4300 digits
        return f"{type(value).__name__} of thousands of digits"


def refusal(error: ValidationError, fields: Mapping[str, FieldInfo]) -> SettingError:
    """Return the `SettingError` for the first errors that pydantic found in settings with these `fields`."""
    findings = error.errors(include_url=False)[:MOST_SHOWN]
    if not findings[0]["loc"]:
        return SettingError(findings[0]["msg"])
    messages = [_refused(str(finding["loc"][0]), finding["input"], finding["type"], fields) for finding in findings]
    strange = any(
        finding["type"] == "extra_forbidden" and not suggestion(str(finding["loc"][0]), fields) for finding in findings
    )
    return SettingError("; ".join(messages) + (f" ({choices(fields)})" if strange else ""))


def _refused(name: str, read: Any, kind: str, fields: Mapping[str, FieldInfo]) -> str:
    place = origin(name, read)
    if kind == "extra_forbidden":
        hint = suggestion(name, fields)
        return f"unknown setting {place}" + (f" ({hint})" if hint else "")
    value = read.value if isinstance(read, SourcedValue) else read
    return f"invalid value {short_repr(value)} for {place}: expected {kind_of(fields[name]).expected}"


def unknown_variable(name: str, prefix: str, known: Iterable[str]) -> SettingError:
    """Return the `SettingError` for a variable that is not `known`, with a hint on those that have its `prefix`."""
    ours = [variable.removeprefix(prefix) for variable in known if variable.startswith(prefix)]
    hint = suggestion(name.removeprefix(prefix), ours, prefix) or choices(prefix + variable for variable in ours)
    return SettingError(f"unknown environment variable {name[:80]} ({hint})")


def suggestion(name: str, known: Iterable[str], prefix: str = "") -> str:
    """Return `did you mean ...?` with the known name for what other trainers call `name`, or one spelt like it.

    Return an empty text if there is none.
    """
    names = {candidate.lower(): candidate for candidate in known}
    asked = name.lower().replace("-", "_")
    meant = names.get(ELSEWHERE.get(asked, ""))
    near = [meant] if meant else [names[match] for match in difflib.get_close_matches(asked, names, n=1, cutoff=0.7)]
    return f"did you mean {prefix + near[0] if prefix else repr(near[0])}?" if near else ""


def choices(known: Iterable[str]) -> str:
    """Return `choose from ...` with the known names, or the command that lists them if they are more than five."""
    names = list(known)
    return f"choose from {', '.join(names)}" if len(names) <= 5 else "run `reference-trainer distill --help` for a list"
