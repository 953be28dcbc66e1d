"""Attacks on what a resumed run refuses. The subject is `pipeline.distill`, or has its names."""

import hashlib
import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save

from falsifiers.checkpoint_files.saved import edited
from falsifiers.resume.runs import Cut, Model, ended, settings
from falsifiers.support.oracles import assert_refused
from falsifiers.support.runs import file_digests, scratch
from reference_trainer.errors import TrainerError

CHANGED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "seed": ({"seed": 3}, ["seed was 0 and is 3"]),
    "accumulation": ({"accumulate": 1}, ["accumulate was 3 and is 1"]),
    "learning rate": ({"lr": 0.5}, ["lr was 0.1 and is 0.5"]),
    "clip": ({"clip": 0.5}, ["clip was null and is 0.5"]),
    "temperature": ({"temperature": 3.0}, ["temperature was 2.0 and is 3.0"]),
    "dtype": ({"dtype": "bfloat16"}, ['dtype was "float32" and is "bfloat16"']),
}
"""Settings that change, and what the refusal says."""
CONDITIONS = {
    "world_size": 1,
    "strategy": "one process",
    "device": "cpu",
    "torch": torch.__version__,
    "threads": torch.get_num_threads(),
    "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    "teacher_sha256": hashlib.sha256(save(Model(3, seed=2).state_dict())).hexdigest(),
}
"""Conditions that are no settings, with their values in this process."""


@given(kind=st.sampled_from([*CHANGED, *CONDITIONS]))
def falsify_drift_is_refused(subject: Any, kind: str) -> None:
    with scratch() as directory:
        ended(subject, settings(directory, "out", max_steps=2))
        others, expected = CHANGED.get(kind, ({}, []))
        teacher = _teacher if kind == "teacher_sha256" else partial(_no_teacher, kind)
        if kind in CONDITIONS:
            expected = [f'{kind} was "other" and is {json.dumps(CONDITIONS[kind])}']
            _edit(directory, lambda tree: tree["conditions"].update({kind: "other"}))
        _assert_refused(subject, kind, directory, expected, teacher=teacher, **others)


def _teacher() -> Model:
    return Model(3, seed=2)


def _no_teacher(kind: str) -> Any:
    raise AssertionError(f"{kind}: the change is not refused before a teacher is made, which may take hours")


FREE = {"max_steps": 3, "log_every": 2, "save_every": 2, "keep": 1, "project_to_steps": 9, "eval_every": 2}


def falsify_free_settings_may_change(subject: Any) -> None:
    with scratch() as directory:
        ended(subject, settings(directory, "out", max_steps=2))
        _, result = ended(subject, settings(directory, "out", resume=Path("latest"), force=True, **FREE))
    steps = result.train.steps_completed
    assert steps == 3, f"resumed with {FREE}, the run has {steps} steps"


def _edit(directory: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = directory / "out" / "checkpoints" / "student-step2" / "manifest.json"
    edited(path, change)


def _position(**others: Any) -> Callable[[Path], object]:
    return lambda d: _edit(d, lambda tree: tree["state"]["train"]["position"].update(others))


def _checkpoint(directory: Path) -> Path:
    return directory / "out" / "checkpoints" / "student-step2"


UNFIT: dict[str, Callable[[Path], object]] = {
    "no checkpoint": lambda d: shutil.rmtree(d / "out" / "checkpoints"),
    "no tensors": lambda d: (_checkpoint(d) / "rank-00000.safetensors").unlink(),
    "a damaged checkpoint": lambda d: (_checkpoint(d) / "rank-00000.safetensors").write_bytes(b"x" * 5000),
    "a state of another step": _position(step=1),
    "a state beyond the epochs": _position(epoch=3),
    "a damaged state": lambda d: _edit(d, lambda tree: tree["state"]["train"].pop("tokens")),
    "another optimizer": lambda d: _edit(d, lambda tree: tree["state"]["optimizer"].update(kind="SGD")),
    "no metrics file": lambda d: (d / "out" / "metrics.jsonl").unlink(),
    "a shorter metrics file": lambda d: (d / "out" / "metrics.jsonl").write_text('{"step": 1}\n'),
    "a later checkpoint": lambda d: shutil.copytree(_checkpoint(d), _checkpoint(d).with_name("student-step3")),
}
SAID = {"a damaged checkpoint": ["--rewind --resume", "student-step1"]}
"""Words of refusals, by kind."""


@given(kind=st.sampled_from(list(UNFIT)))
def falsify_unfit_checkpoint_is_refused(subject: Any, kind: str) -> None:
    with scratch() as directory:
        ended(subject, settings(directory, "out", max_steps=2))
        UNFIT[kind](directory)
        resume = _checkpoint(directory) if kind == "a later checkpoint" else Path("latest")
        _assert_refused(subject, kind, directory, SAID.get(kind, []), resume=resume)


def falsify_run_that_starts_over_is_refused_beside_checkpoints(subject: Any) -> None:
    with scratch() as directory:
        words = ["checkpoints up to step ", "--resume latest"]
        with suppress(KeyboardInterrupt):
            ended(subject, settings(directory, "out"), [Cut(2)])
        for force in (False, True):
            _assert_refused(subject, f"a run with force {force}", directory, words, resume=None, force=force)


def _assert_refused(subject: Any, kind: str, directory: Path, words: list[str], **others: Any) -> None:
    before = file_digests(directory)
    teacher = others.pop("teacher", _teacher)
    given_settings = {"resume": Path("latest"), "force": True, **others}
    chosen = settings(directory, "out", **given_settings)
    assert_refused(kind, lambda: ended(subject, chosen, teacher=teacher), *words, kind=TrainerError)
    changed = sorted(set(before.items()) ^ set(file_digests(directory).items()))
    assert not changed, f"{kind}: the run was refused, and changed {changed}"
