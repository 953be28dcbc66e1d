"""Attacks on supervised runs, with attempts that only save checkpoints. Subjects are rooms of `supervision`."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.support.scratch import flip, reconfigure, scratch
from reference_trainer.config.settings import Settings
from reference_trainer.errors import CheckpointError, DriftError
from reference_trainer.models.decoder import DecoderConfig, new_decoder
from reference_trainer.storage.checkpoints import Manifest, save_checkpoint
from reference_trainer.storage.export import WEIGHTS, save_decoder
from reference_trainer.supervision.decision import Ending, Verdict

RUN, RANK = "student", "rank-00000.safetensors"


@contextmanager
def _output() -> Iterator[Path]:
    with scratch() as directory:
        yield directory / "out"


def _save(out: Path, step: int) -> Path:
    manifest = Manifest(run_id=RUN, step=step, conditions={}, state={})
    return save_checkpoint(out / "checkpoints", manifest, {"w": torch.full((3,), float(step))})


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a file cut off": lambda path: os.truncate(path / RANK, 9),
    "a flipped bit": lambda path: flip(path / RANK),
    "a missing file": lambda path: (path / RANK).unlink(),
    "half a manifest": lambda path: os.truncate(path / "manifest.json", 40),
    "no manifest": lambda path: (path / "manifest.json").unlink(),
    "another step's manifest": lambda path: reconfigure(path / "manifest.json", step=999),
}


@given(damages=st.lists(st.none() | st.sampled_from(sorted(DAMAGES)), min_size=1, max_size=4))
def falsify_newest_whole_checkpoint_is_found(subject: Any, damages: list[str | None]) -> None:
    with _output() as out:
        for step, damage in enumerate(damages, start=1):
            path = _save(out, step)
            if damage is not None:
                DAMAGES[damage](path)
        before, told = _contents(out), list[str]()
        whole = [step for step, damage in enumerate(damages, start=1) if damage is None]
        try:
            seen: Any = subject.whole_step(out, told.append)
        except CheckpointError:
            seen = "refused"
        expected = whole[-1] if whole else "refused"
        assert seen == expected, f"with the damages {damages} the newest whole step is {seen}; expected {expected}"
        assert _contents(out) == before, f"with the damages {damages} a file is lost or changed"
        stays = whole[-1] if whole else 1
        left = sorted(path.name for path in (out / "checkpoints").glob(f"{RUN}-step*"))
        steps = range(1, len(damages) + 1)
        names = [f"{RUN}-step{step}{'' if step <= stays else '.damaged'}" for step in steps]
        assert left == names, f"with the damages {damages} the checkpoints are {left}; expected {names}"
        assert len(told) == len(damages) - stays, f"with the damages {damages}, {told} is reported"


def _contents(out: Path) -> list[bytes]:
    return sorted(path.read_bytes() for path in out.rglob("*") if path.is_file() and not path.is_symlink())


MODELS: dict[str, Callable[[Path], object]] = {
    "a flipped bit": lambda out: flip(out / WEIGHTS),
    "no weights": lambda out: (out / WEIGHTS).unlink(),
    "no manifest": lambda out: (out / "manifest.json").unlink(),
    "no result": lambda out: reconfigure(out / "manifest.json", result=None),
    "no number of steps": lambda out: reconfigure(out / "manifest.json", result={"steps_completed": "nine"}),
}


class Attempts:
    """Attempts of a run that take some steps each, the last of them to the end; what they were given is recorded."""

    def __init__(self, out: Path, gains: list[int], target: int) -> None:
        self.out, self.gains, self.target = out, gains, target
        self.given: list[tuple[list[str], str]] = []
        self.at = 0

    def __call__(self, arguments: list[str], beats: Path, name: str) -> tuple[Ending, str]:
        assert beats.is_dir(), f"{beats} is no directory for heartbeats"
        self.given.append((list(arguments), name))
        gain = self.gains[len(self.given) - 1] if len(self.given) <= len(self.gains) else self.target
        self.at = min(self.at + gain, self.target)
        if gain and not (self.out / "checkpoints" / f"{RUN}-step{self.at}").exists():
            _save(self.out, self.at)
        if gain < self.target:
            return Ending.FAILED, "killed"
        _export(self.out, self.target)
        return Ending.FINISHED, "ended"


def _export(out: Path, steps: int, **content: Any) -> None:
    out.mkdir(exist_ok=True)
    decoder = new_decoder(DecoderConfig(vocab_size=4, layers=1, width=16, heads=1), 0)
    save_decoder(decoder, out, {"result": {"steps_completed": steps}, **content})


TARGET = 9


@given(
    gains=st.lists(st.integers(0, 4), max_size=4),
    retries=st.integers(0, 5),
    idle=st.integers(1, 3),
    older=st.sampled_from([0, 3, TARGET]),
    alone=st.booleans(),
)
def falsify_attempts_resume_until_the_step_is_reached(
    subject: Any, gains: list[int], retries: int, idle: int, older: int, alone: bool
) -> None:
    """older: step of an earlier model, which is no progress of this run. alone: whether it has no checkpoint."""
    with _output() as out:
        if older:
            _export(out, older)
        if older and not alone:
            _save(out, older)
        run = Attempts(out, gains, TARGET)
        run.at = 0 if alone else older
        limits = subject.Limits(step=TARGET, max_retries=retries, max_idle=idle, silent_s=60.0)
        told: list[str] = []
        seen = subject.until(Settings(out=out, save_every=1), ["--seed", "3"], limits, launch=run, report=told.append)
        what = f"a model of step {older} {'alone' if alone else 'and its checkpoint'}"
        when = f"with {retries} retries, {idle} idle attempts, gains {gains} and {what}"
        if older == TARGET:
            assert (seen, run.given) == (Verdict.DONE, []), f"{when}, the run is started again: {seen.name}"
        else:
            _assert_arguments(when, run, 0 if alone else older)
            ended, wanted = (seen.name, len(run.given)), _expected(gains, retries, idle)
            assert ended == wanted, f"{when}, verdict and attempts are {ended}; expected {wanted}"
        names = [name for _, name in run.given]
        assert len(set(names)) == len(names), f"{when}, attempts have the names {names}"
        left = sorted(path.name for path in out.parent.iterdir() if path != out)
        assert left == [], f"{when}, {left} is left beside the output"


def _assert_arguments(when: str, run: Attempts, older: int) -> None:
    at = older
    for number, (arguments, _) in enumerate(run.given):
        more = ["--resume", "latest"] if at else []
        more += ["--force"] if at or number else []
        expected = ["distill", "--seed", "3", "--max-steps", str(TARGET), *more]
        assert arguments == expected, f"{when}, attempt {number + 1} is given {arguments}; expected {expected}"
        at += [*run.gains, TARGET][number] if number <= len(run.gains) else 0


def _expected(gains: list[int], retries: int, idle: int) -> tuple[str, int]:
    """Return the name of the verdict, and the number of attempts."""
    standing = 0
    for number, gain in enumerate(gains, start=1):
        standing = 0 if gain else standing + 1
        if standing >= idle:
            return "NO_PROGRESS", number
        if number > retries:
            return "RETRIES_SPENT", number
    return "DONE", len(gains) + 1


OLDER: dict[str, tuple[dict[str, Any], bool]] = {
    "no model": ({}, False),
    "a model of a run that its limit ended": ({"max_steps": TARGET - 1}, False),
    "a model of a run to its planned end": ({"max_steps": None}, True),
    "a model of a run that ended before its limit": ({"max_steps": TARGET}, True),
}
"""The settings of an earlier run of TARGET - 1 steps, and whether it came to its planned end."""


@given(older=st.sampled_from(sorted(OLDER)), gains=st.lists(st.integers(1, 4), max_size=2))
def falsify_run_without_a_step_goes_to_its_planned_end(subject: Any, older: str, gains: list[int]) -> None:
    settings, is_done = OLDER[older]
    with _output() as out:
        if settings:
            _export(out, TARGET - 1, settings=settings)
        run = Attempts(out, gains, TARGET)
        limits = subject.Limits(step=None, max_retries=9, max_idle=2, silent_s=60.0)
        seen = subject.until(Settings(out=out, save_every=1), [], limits, launch=run, report=lambda line: None)
        attempts = 0 if is_done else len(gains) + 1
        ended = (seen, len(run.given))
        assert ended == (Verdict.DONE, attempts), f"with {older}, {ended}; expected DONE after {attempts} attempts"
        limited = [arguments for arguments, _ in run.given if "--max-steps" in arguments]
        assert limited == [], f"with {older}, the plan is cut off: {limited}"


@given(damage=st.none() | st.sampled_from(sorted(MODELS)))
def falsify_checkpoint_without_a_model_is_not_the_end(subject: Any, damage: str | None) -> None:
    with _output() as out:
        _save(out, TARGET)
        if damage is not None:
            _export(out, TARGET)
            MODELS[damage](out)
        run = Attempts(out, [], TARGET)
        run.at = TARGET
        limits = subject.Limits(step=TARGET, max_retries=3, max_idle=2, silent_s=60.0)
        seen = subject.until(Settings(out=out, save_every=1), [], limits, launch=run, report=lambda line: None)
        resumed = ["--resume" in arguments for arguments, _ in run.given]
        case = "without a model" if damage is None else f"with a model that has {damage}"
        assert (seen, resumed) == (Verdict.DONE, [True]), f"{case}, {seen.name} after {resumed}"


CHANGES: list[dict[str, Any]] = [{}, {"lr": 0.5}, {"clip": 1.0}, {"layers": 7}, {"divergence": "reverse_kl"}]
FREE: list[dict[str, Any]] = [{}, {"log_every": 7}, {"keep": 9}, {"max_steps": TARGET + 1}, {"device": "cuda"}]


@given(changed=st.sampled_from(CHANGES), free=st.sampled_from(FREE), older=st.booleans())
def falsify_model_of_other_settings_is_not_the_end(
    subject: Any, changed: dict[str, Any], free: dict[str, Any], older: bool
) -> None:
    """free: settings that a run may change when it resumes. older: the manifest lacks settings of newer versions."""
    with _output() as out:
        settings = Settings(out=out)
        recorded = {**({} if older else settings.model_dump(mode="json")), **changed, **free}
        _export(out, TARGET, **({"settings": recorded} if recorded else {}))
        before, run = _contents(out), Attempts(out, [], TARGET)
        limits = subject.Limits(step=TARGET, max_retries=3, max_idle=2, silent_s=60.0)
        try:
            seen = subject.until(settings, [], limits, launch=run, report=lambda line: None).name
        except DriftError as error:
            seen = str(error)
        case = f"with a model of {recorded}, the end is {seen!r}"
        now = settings.model_dump(mode="json")
        said = [f"{name} was {json.dumps(value)} and is {json.dumps(now[name])}" for name, value in changed.items()]
        assert all(each in seen for each in said) if changed else seen == "DONE", f"{case}; expected {said or 'DONE'}"
        assert (run.given, _contents(out)) == ([], before), f"{case}, after the attempts {run.given}"
