"""Annotated types of settings: validation, parsing from text, help strings, and error messages.

A message has the name of the setting, its value, the source of the value, and the allowed values.
"""

from __future__ import annotations

import difflib
import importlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, ValidationError, WithJsonSchema
from pydantic.fields import FieldInfo

from reference_trainer.distillation.objective import DIVERGENCES, TEMPERATURES
from reference_trainer.errors import SettingError

LOGGERS = ("tensorboard", "wandb", "mlflow")
OPTIMIZERS = ("adamw", "adafactor")
LIMIT = 10**18
"""Integers are below this limit: they have at most 18 digits and fit into 64 bits."""


def read_integer(text: str) -> int:
    """Parse a decimal integer. Raise `ValueError` for a plus sign, spaces, other scripts and more than 18 digits."""
    if not re.fullmatch(r"-?[0-9]{1,18}", text):
        raise ValueError(text)
    return int(text)


def read_number(text: str) -> float:
    """Parse a decimal number. Raise `ValueError` for `nan`, `inf`, spaces and underscores."""
    if not re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", text):
        raise ValueError(text)
    return float(text)


def read_steps(text: str) -> float:
    """Parse a number of steps (int); with a point or an exponent, a share (float). Else raise `ValueError`."""
    return read_number(text) if "." in text or "e" in text.lower() else read_integer(text)


def steps_or_share(value: object) -> float:
    """Return `value` if it is a number of steps (int) or a share of the steps (float). Else raise `ValueError`."""
    if (type(value) is int and 0 <= value < LIMIT) or (type(value) is float and 0 < value < 1):
        return value
    raise ValueError(value)


def read_switch(text: str) -> bool:
    """Return True for `true` and `1`, False for `false` and `0`. Raise `ValueError` for any other text."""
    if text not in ("0", "1", "false", "true"):
        raise ValueError(text)
    return text in ("1", "true")


def read_path(text: str) -> Path:
    """Return `text` as a path. Raise `ValueError` for an empty text, which `Path` takes for the working directory."""
    if not text:
        raise ValueError(text)
    return Path(text)


def read_model_path(text: str) -> Path:
    """Return `text`, which is the path or the id of a model, as a path. Raise `ValueError` for an empty text.

    A text that can only be a path, such as `./teacher`, becomes an absolute path: `Path` would shorten it to `teacher`,
    which may be the id of a model on the hub.
    """
    path = read_path(text)
    return path.absolute() if text.startswith(".") or text.endswith("/") else path


def without_null(path: Path) -> Path:
    """Return `path`. Raise `ValueError` if it has a null character, which no file name can have."""
    if "\0" in str(path):
        raise ValueError("null character in a path")
    return path


def layer_pairs(text: str) -> str:
    """Return `text`. Raise `ValueError` unless it consists of pairs of layers, such as `-1:-1,0:2`."""
    if not re.fullmatch(r"-?[0-9]{1,9}:-?[0-9]{1,9}(,-?[0-9]{1,9}:-?[0-9]{1,9})*", text):
        raise ValueError(text)
    return text


def import_path(text: str) -> str:
    """Return `text`. Raise `ValueError` unless it is MODULE:CLASS."""
    if text.count(":") != 1 or not all(part.isidentifier() for part in text.replace(":", ".").split(".")):
        raise ValueError(text)
    return text


def loggers(text: str) -> str:
    """Return `text`. Raise `ValueError` unless it consists of names in `LOGGERS`, separated by commas."""
    if not set(text.split(",")) <= set(LOGGERS):
        raise ValueError(text)
    return text


def optimizer_name(text: str) -> str:
    """Return `text`. Raise `ValueError` unless it is a name in `OPTIMIZERS` or MODULE:CLASS."""
    return text if text in OPTIMIZERS else import_path(text)


def json_text(value: object) -> object:
    """Return a dict as JSON text, anything else unchanged. Raise `ValueError` for values that JSON does not have."""
    try:
        return json.dumps(value, allow_nan=False, ensure_ascii=False) if isinstance(value, dict) else value
    except (TypeError, RecursionError) as error:
        raise ValueError("not JSON") from error


def json_object(text: str) -> str:
    """Return `text`. Raise `ValueError` unless it is a JSON object."""
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise ValueError("too deep nesting") from error
    if not isinstance(value, dict):
        raise ValueError(text)
    return text


@dataclass(frozen=True, slots=True)
class Kind:
    """The description and the parser of a type of settings.

    Attributes:
        expected: The allowed values, for messages.
        metavar: The placeholder of the value in `--help`; empty for a switch.
        read: Parses the text of a flag, an environment variable or an unquoted scalar of YAML. Raises `ValueError` for
            invalid text.
    """

    expected: str
    metavar: str
    read: Callable[[str], object] = str


# `strict` refuses values of other types. Without it, pydantic would convert "3" to 3 and True to 1.
Count = Annotated[
    int,
    Field(strict=True, ge=1, lt=LIMIT),
    Kind("a positive decimal integer below 10^18", "N", read_integer),
]
CountOrZero = Annotated[
    int,
    Field(strict=True, ge=0, lt=LIMIT),
    Kind("a decimal integer from 0 to 10^18", "N", read_integer),
]
Warmup = Annotated[
    float,
    PlainValidator(steps_or_share),
    WithJsonSchema({"type": "number", "minimum": 0}),
    Kind("a decimal integer from 0 to 10^18, or a share between 0 and 1", "N", read_steps),
]
Depth = Annotated[
    int,
    Field(strict=True, ge=0, le=100),
    Kind("a decimal integer from 0 to 100", "N", read_integer),
]
Length = Annotated[
    int,
    Field(strict=True, ge=2, lt=LIMIT),
    Kind("a decimal integer from 2 to 10^18", "N", read_integer),
]
Width = Annotated[
    int,
    Field(strict=True, ge=16, le=65536, multiple_of=16),
    Kind("a multiple of 16, from 16 to 65536", "N", read_integer),
]
Temperature = Annotated[
    float,
    Field(strict=True, ge=TEMPERATURES[0], le=TEMPERATURES[1], allow_inf_nan=False),
    Kind("a number from 0.0001 to 10000", "X", read_number),
]
Weight = Annotated[
    float,
    Field(strict=True, ge=0, le=1e30, allow_inf_nan=False),
    Kind("a number from 0 to 1e30", "X", read_number),
]
LearningRate = Annotated[
    float,
    Field(strict=True, gt=0, le=1e6, allow_inf_nan=False),
    Kind("a number above 0, up to 1e6", "X", read_number),
]
Seconds = Annotated[
    float,
    Field(strict=True, ge=0, le=1e6, allow_inf_nan=False),
    Kind("a number of seconds from 0 to 1e6", "S", read_number),
]
Divergence = Annotated[
    str,
    Field(strict=True, pattern=f"^({'|'.join(DIVERGENCES)})$"),
    Kind(" or ".join(", ".join(DIVERGENCES).rsplit(", ", 1)), "|".join(DIVERGENCES)),
]
Distance = Annotated[
    Literal["cosine", "l2"],
    Kind("cosine or l2", "cosine|l2"),
]
Layers = Annotated[
    str,
    Field(strict=True),
    AfterValidator(layer_pairs),
    Kind("pairs of layers STUDENT:TEACHER, such as -1:-1,0:2", "PAIRS"),
]
Import = Annotated[
    str,
    Field(strict=True),
    AfterValidator(import_path),
    Kind("MODULE:CLASS", "MODULE:CLASS"),
]
OptimizerName = Annotated[
    str,
    Field(strict=True),
    AfterValidator(optimizer_name),
    Kind(f"{', '.join(OPTIMIZERS)} or MODULE:CLASS", "NAME"),
]
Loggers = Annotated[
    str,
    Field(strict=True),
    AfterValidator(loggers),
    Kind(f"names separated by commas, of {', '.join(LOGGERS)}", "NAMES"),
]
JSONObject = Annotated[
    str,
    Field(strict=True),
    BeforeValidator(json_text),
    AfterValidator(json_object),
    WithJsonSchema({"type": ["object", "string"]}),
    Kind("a JSON object", "JSON"),
]
Documents = Annotated[
    Literal["pad", "pack"],
    Kind("pad or pack", "pad|pack"),
]
Vocabulary = Annotated[
    Literal["truncate", "truncate-student", "pad"],
    Kind("truncate, truncate-student or pad", "truncate|truncate-student|pad"),
]
Text = Annotated[
    str,
    Field(strict=True, min_length=1),
    Kind("a text that is not empty", "TEXT"),
]
Turns = Annotated[
    Literal["every", "last"],
    Kind("every or last", "every|last"),
]
Shape = Annotated[
    Literal["linear", "cosine"],
    Kind("linear or cosine", "linear|cosine"),
]
RateShape = Annotated[
    Literal["cosine", "linear", "constant", "wsd"],
    Kind("cosine, linear, constant or wsd", "cosine|linear|constant|wsd"),
]
Mode = Annotated[
    Literal["min", "max"],
    Kind("min or max", "min|max"),
]
Strategy = Annotated[
    Literal["ddp", "fsdp2"],
    Kind("ddp or fsdp2", "ddp|fsdp2"),
]
Share = Annotated[
    float,
    Field(strict=True, ge=0, le=1, allow_inf_nan=False),
    Kind("a number from 0 to 1", "X", read_number),
]
PositiveShare = Annotated[
    float,
    Field(strict=True, gt=0, le=1, allow_inf_nan=False),
    Kind("a number above 0, up to 1", "X", read_number),
]
GradientNorm = Annotated[
    float,
    Field(strict=True, gt=0, le=1e30, allow_inf_nan=False),
    Kind("a number above 0, up to 1e30", "X", read_number),
]
Switch = Annotated[bool, Field(strict=True), Kind("true or false (1 or 0)", "", read_switch)]
Location = Annotated[
    Path,
    Field(strict=True),
    BeforeValidator(lambda value: read_path(value) if isinstance(value, str) else value),
    AfterValidator(without_null),
    Kind("a path", "PATH"),
]
ModelLocation = Annotated[
    Path,
    Field(strict=True),
    BeforeValidator(lambda value: read_model_path(value) if isinstance(value, str) else value),
    AfterValidator(without_null),
    Kind("a path", "PATH"),
]
Device = Annotated[
    str,
    Field(strict=True, pattern="^(auto|cpu|cuda(:[0-9]{1,3})?)$"),
    Kind("auto, cpu, cuda or cuda:N", "DEVICE"),
]
Dtype = Annotated[
    Literal["float32", "float64", "bfloat16"],
    Kind("float32, float64 or bfloat16", "float32|float64|bfloat16"),
]
Weights = Annotated[
    Literal["float32", "bfloat16"],
    Kind("float32 or bfloat16", "float32|bfloat16"),
]


def kind_of(field: FieldInfo) -> Kind:
    """Return the `Kind` in the annotation of a setting, optional or not."""
    # For `X | None`, pydantic leaves the metadata of X in the member X of the union; for X, it moves them to the field.
    members = [extra for member in get_args(field.annotation) for extra in getattr(member, "__metadata__", ())]
    return next(extra for extra in (*field.metadata, *members) if isinstance(extra, Kind))


OTHER_NAMES = {
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
"""Names of settings in other trainers, and the names of the same settings in this trainer."""
MOST_SHOWN = 8
"""Largest number of invalid settings that one message names."""


@dataclass(frozen=True, slots=True)
class SourcedValue:
    """A value from a flag, a variable or a file.

    Attributes:
        value: The value.
        origin: The source, for messages, such as `--smoke`.
        is_text: Whether the value is text that `Kind.read` parses; a file in TOML has typed values.
    """

    value: Any
    origin: str
    is_text: bool = True


def path_in_json(path: Path) -> str:
    """Return a path as text for a JSON file, with escapes such as \\udcff for bytes that are not UTF-8."""
    return str(path).encode("utf-8", "backslashreplace").decode()


def short_repr(value: object) -> str:
    """Return the `repr` of a value, cut off after 80 characters."""
    try:
        return repr(value)[:80]
    except ValueError:  # Python refuses to print integers of more than 4300 digits
        return f"{type(value).__name__} of thousands of digits"


def refusal(error: ValidationError, fields: Mapping[str, FieldInfo], names: Iterable[str] = ()) -> SettingError:
    """Return the `SettingError` for the first errors that pydantic found in settings.

    Args:
        error: The error of pydantic.
        fields: Declarations of settings. A key is the location of the setting in the error, joined by dots.
        names: Further names to suggest.
    """
    findings = error.errors(include_url=False)[:MOST_SHOWN]
    if not findings[0]["loc"]:  # the error of a validator of all settings has its own message
        conflict: SettingError = findings[0]["ctx"]["error"]
        return conflict
    messages, needs_choices = list[str](), False
    for finding in findings:
        name, read = ".".join(map(str, finding["loc"])), finding["input"]
        source, value = (read.origin, read.value) if isinstance(read, SourcedValue) else (repr(name), read)
        if finding["type"] == "extra_forbidden":
            hint = suggestion(name, (*names, *fields))
            needs_choices |= not hint
            messages.append(f"unknown setting {source}" + (f" ({hint})" if hint else ""))
        else:
            expected = kind_of(fields[name]).expected
            messages.append(f"invalid value {short_repr(value)} for {source}: expected {expected}")
    return SettingError("; ".join(messages) + (f" ({choices(fields)})" if needs_choices else ""))


def unknown_variable(name: str, prefix: str, variables: Iterable[str]) -> SettingError:
    """Return the `SettingError` for an unknown environment variable. Suggest one of `variables` that has the prefix."""
    settings = [variable.removeprefix(prefix) for variable in variables if variable.startswith(prefix)]
    hint = suggestion(name.removeprefix(prefix), settings, prefix) or choices(prefix + setting for setting in settings)
    return SettingError(f"unknown environment variable {name[:80]} ({hint})")


def suggestion(name: str, settings: Iterable[str], prefix: str = "") -> str:
    """Return `did you mean ...?` with the setting that other trainers call `name`, or else a similar name; "" if none.

    Args:
        name: The unknown name.
        settings: The names to choose from.
        prefix: Put before the suggested name.
    """
    # 1. A name of another trainer, or a name without its group. 2. A similar name, in the same group if there is one.
    names = {setting.lower(): setting for setting in settings if ("." in setting) == ("." in name)}
    normalised = name.lower().replace("-", "_")
    group, dot, leaf = normalised.rpartition(".")  # group and dot are "" for a name without a group
    exact = [names[lower] for lower in names if lower.rpartition(".")[2] == OTHER_NAMES.get(leaf, leaf)]
    in_group = {lower.removeprefix(group + dot): names[lower] for lower in names if lower.startswith(group + dot)}
    matches = exact or [
        (in_group or names)[match]
        for match in difflib.get_close_matches(leaf if in_group else normalised, in_group or names, n=1, cutoff=0.7)
    ]
    return f"did you mean {prefix + matches[0] if prefix else repr(matches[0])}?" if matches else ""


def choices(settings: Iterable[str]) -> str:
    """Return `choose from ...` with the names; for more than five names, the command that lists all settings."""
    names = list(settings)
    return f"choose from {', '.join(names)}" if len(names) <= 5 else "run `reference-trainer distill --help` for a list"


def import_object(setting: str, path: str) -> Any:
    """Return the object with an import path. Raise `SettingError` if it cannot be imported.

    Args:
        setting: The setting with the import path, at the beginning of messages.
        path: The import path, MODULE:NAME.
    """
    module, _, name = path.partition(":")
    if module == "__main__":  # in another process, `__main__` is another program
        raise SettingError(
            f"{setting}: {path} is in a program or a notebook, which other processes cannot import; write it to a "
            f"file, such as mine.py in the working directory, and name it mine:{name}"
        )
    try:
        target: object = importlib.import_module(module)
    except Exception as error:
        hint = "; install it, or add its directory to PYTHONPATH" if isinstance(error, ModuleNotFoundError) else ""
        raise SettingError(f"{setting}: cannot import {module}: {type(error).__name__}: {error}{hint}") from error
    for part in name.split("."):
        if not hasattr(target, part):
            near = difflib.get_close_matches(part, dir(target))
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise SettingError(f"{setting}: unknown name {part!r} in {module}{hint}")
        target = getattr(target, part)
    return target
