"""Choose the class of a run: the class of `--parts`, the class for Hugging Face models, or the packaged class."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, Unpack

import torch
from torch import nn

from reference_trainer.config.kinds import import_object
from reference_trainer.config.settings import FIELDS, Settings
from reference_trainer.errors import CheckpointError, SettingError
from reference_trainer.pipeline.parts import Run, RunOptions
from reference_trainer.storage.export import exported_bytes
from reference_trainer.storage.files import exclusive_directory
from reference_trainer.storage.whole_weights import SavedWeights

AnyRun = TypeVar("AnyRun", bound=Run)

STUDENT_SETTINGS = ("parts", "arguments", "student", "chat_template")
"""The settings that name the class or the model of the student, and the chat template of its tokenizer."""
HUGGING_FACE = "reference_trainer.huggingface.parts:HuggingFace"


def find_parts(settings: Settings) -> tuple[Callable[..., Any], dict[str, object]] | None:
    """Return the class that the settings name, and its arguments; None if the settings name no class.

    A Hugging Face student without `parts` has the class `HuggingFace`. No instance is created. Raise `SettingError` if
    the class cannot be imported, is not a subclass of `Run` (with a Hugging Face student, of `HuggingFace`), or does
    not accept the arguments.
    """
    hugging_face = None if settings.student.model is None else import_object("student", HUGGING_FACE)
    if settings.run.parts is None:
        return None if hugging_face is None else (hugging_face, {})
    run_class = import_object("parts", settings.run.parts)
    if not (isinstance(run_class, type) and issubclass(run_class, Run)):
        raise SettingError(f"parts: {settings.run.parts} is not a subclass of reference_trainer's Distillation")
    if hugging_face is not None and not issubclass(run_class, hugging_face):
        raise SettingError(
            f"conflicting settings: 'parts' is {settings.run.parts} and 'student' is {settings.student.model}; "
            "make 'parts' a subclass of reference_trainer's HuggingFace, or set only one of them: every other class "
            "creates its own student"
        )
    arguments: dict[str, object] = json.loads(settings.run.arguments or "{}")
    try:
        inspect.signature(run_class).bind(settings, **arguments)
    except TypeError as error:
        raise SettingError(f"parts: cannot create {settings.run.parts}: {error}; see --arguments") from error
    return run_class, arguments


def create_run(settings: Settings, default: type[AnyRun], **options: Unpack[RunOptions]) -> AnyRun:
    """Return a new instance of the class that the settings name, or of `default`.

    Args:
        settings: The settings of the run.
        default: The class of a run whose settings name no class.
        options: The other arguments of `Run`.

    Raises:
        SettingError: As `find_parts`, and if the class of the setting `parts` raises `TypeError`.
    """
    custom_class, arguments = find_parts(settings) or (None, {})
    run_class: Callable[..., AnyRun] = custom_class or default
    try:
        run: AnyRun = run_class(settings, **arguments, **options)
        return run
    except TypeError as error:
        if settings.run.parts is None:
            raise
        raise SettingError(f"parts: cannot create {settings.run.parts}: {error}; see --arguments") from error


def custom_settings(settings: Settings) -> dict[str, str]:
    """Return the settings of `STUDENT_SETTINGS` that are set; {} unless the settings name a class or a student model.

    Paths that exist become absolute, because an export may run in another working directory.
    """
    if settings.run.parts is None and settings.student.model is None:
        return {}
    return {
        name: str(setting.absolute() if isinstance(setting, Path) and setting.exists() else setting)
        for name, setting in settings.flat().items()
        if name in STUDENT_SETTINGS and setting is not None
    }


def checkpoint_module(saved: SavedWeights, run: Run) -> nn.Module:
    """Return the student that the run makes, with the weights of a checkpoint, on the CPU.

    Raise `CheckpointError` if the weights do not fit, or if `make_student` reads other inputs than when the checkpoint
    was saved. Errors of `make_student` propagate.
    """
    # `make_student` records the digests of its inputs in `run.digests`: start with no digests, to compare only these.
    run_digests, run.digests = run.digests, {}
    student = run.make_student()
    _check_inputs(saved, run.digests)
    run.digests = run_digests | run.digests
    saved.load_into("student", student)
    return student


def export_student(saved: SavedWeights, out: Path, content: dict[str, object]) -> None:
    """Write the student of a checkpoint with the method `save` of the run's class, and `content` as the manifest.

    Only `make_student` and `save` are called, so `save` must not use other objects that a run creates. Errors of both
    methods propagate.
    """
    manifest = saved.manifest
    names = FIELDS.keys() - {"strategy"}  # whatever the strategy of the run was, `saved` has the full weights
    conditions = {name: value for name, value in manifest.conditions.items() if name in names}
    settings = Settings(**conditions | manifest.state["own"])
    with create_run(settings, Run) as run:
        run.device = torch.device("cpu")
        run.student = checkpoint_module(saved, run)
        with exclusive_directory(out, force=False, bytes_needed=exported_bytes(run.student)) as claimed:
            run.save(claimed, content)


def _check_inputs(saved: SavedWeights, digests: Mapping[str, str]) -> None:
    """Raise `CheckpointError` if an input of `make_student` has another digest than in the checkpoint."""
    conditions = saved.manifest.conditions
    for name, digest in digests.items():
        if conditions.get(name, digest) != digest:
            raise CheckpointError(
                f"{saved.path} was saved with {name} {conditions[name]}, which is now {digest}; expected the same input"
            )
