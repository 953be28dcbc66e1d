"""Attacks on runs that are interrupted, killed, stopped or rewound, and resumed. The subject is `pipeline.distill`."""

import hashlib
import json
import os
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st
from safetensors.torch import save

from falsifiers.checkpoint_files.saved import assert_same, edited
from falsifiers.resume.runs import STEPS, Cut, Model, assert_same_end, run_to_end, run_with_resumes, settings
from falsifiers.support.assertions import assert_equal
from falsifiers.support.interruptions import ended_before
from falsifiers.support.oracles import assert_refused
from falsifiers.support.runs import acting, assert_same_history, file_digests, lines, scratch, unchanged_files
from reference_trainer import Action, Callback
from reference_trainer.config.settings import FIELDS
from reference_trainer.distillation.step import MetricSum
from reference_trainer.errors import CheckpointError, StopRequestedError, TrainerError
from reference_trainer.storage.checkpoints import read_checkpoint, saved_steps


@given(
    cuts=st.lists(st.integers(1, STEPS), min_size=1, max_size=3, unique=True),
    save_every=st.integers(1, 3),
    log_every=st.integers(1, 3),
    keep=st.integers(0, 2),
)
def falsify_cut_run_ends_like_an_uninterrupted_one(
    subject: Any, cuts: list[int], save_every: int, log_every: int, keep: int
) -> None:
    with scratch() as directory:
        every = {"save_every": save_every, "log_every": log_every, "keep": keep}
        uninterrupted = run_to_end(subject, settings(directory, "uninterrupted", **every))
        cut = run_with_resumes(subject, directory, "cut", [Cut(*cuts)], **every)
        when = f"saved every {save_every} steps and interrupted after {sorted(cuts)}"
        assert_same_end(when, directory, ("cut", cut), ("uninterrupted", uninterrupted))


LATEST = Path("latest")
FIRST = (1, 1)
"""The batch that every run reads once more, to count the operations of a step."""


def _checkpoint_path(form: str, run: Path, step: int | None) -> Path:
    """Return a path of the checkpoint of a step: `latest`, a relative path, or a path through a symbolic link."""
    if form == "latest":
        return LATEST
    link = run.with_name("link")
    if form == "linked" and not link.exists():
        link.symlink_to(run, target_is_directory=True)
    place = link if form == "linked" else Path(os.path.relpath(run))
    return place / "checkpoints" / f"student-step{step}"


@given(
    limits=st.sets(st.integers(1, STEPS - 1), min_size=1, max_size=2),
    save_every=st.sampled_from([1, 2, 5000]),
    form=st.sampled_from(["latest", "linked", "relative"]),
)
@example(limits={3, 4}, save_every=5000, form="linked")
@example(limits={2, 5}, save_every=2, form="relative")
def falsify_limited_run_goes_on_like_an_uninterrupted_one(
    subject: Any, limits: set[int], save_every: int, form: str
) -> None:
    with scratch() as directory:
        batches, resume = [], None
        uninterrupted = run_to_end(subject, settings(directory, "uninterrupted", save_every=save_every))
        for limit in (*sorted(limits), None):
            chosen = settings(directory, "cut", save_every=save_every, max_steps=limit, resume=resume, force=True)
            cut = run_to_end(subject, chosen)
            batches += cut[0].batches.requested
            resume = _checkpoint_path(form, directory / "cut", limit)
        when = f"ended after {sorted(limits)} steps and saved every {save_every}, then resumed with a {form} path"
        assert_same_end(when, directory, ("cut", cut), ("uninterrupted", uninterrupted))
        pairs = batches, uninterrupted[0].batches.requested
        seen, expected = ([batch for batch in numbers if batch != FIRST] for numbers in pairs)
        assert_equal(f"{when}, requested batches", seen, expected)


@given(step=st.integers(1, STEPS - 1))
def falsify_run_forks_into_another_directory(subject: Any, step: int) -> None:
    with scratch() as directory:
        _, uninterrupted = run_to_end(subject, settings(directory, "uninterrupted"))
        run_to_end(subject, settings(directory, "short", max_steps=step))
        before = file_digests(directory)
        path = directory / "short" / "checkpoints" / f"student-step{step}"
        _, fork = run_to_end(subject, settings(directory, "fork", resume=path))
        when = f"forked after step {step}"
        assert_same(when, fork.student.state_dict(), uninterrupted.student.state_dict())
        expected = lines(directory, "uninterrupted")[step:]
        assert_same_history(f"{when}, the metrics file", lines(directory, "fork"), expected)
        after = file_digests(directory)
        changed = [name for name in before if after.get(name) != before[name]]
        assert not changed, f"{when}, changed files of other runs: {changed}; expected none"


@given(step=st.integers(1, STEPS), limit=st.integers(1, STEPS))
@example(step=3, limit=1)
def falsify_no_step_is_taken_beyond_the_limit(subject: Any, step: int, limit: int) -> None:
    limit = min(step, limit)
    with scratch() as directory:
        before, _ = run_to_end(subject, settings(directory, "out", max_steps=step))
        after, result = run_to_end(subject, settings(directory, "out", max_steps=limit, resume=LATEST, force=True))
        label = f"resumed after step {step} with a limit of {limit}"
        seen = [line["step"] for line in lines(directory, "out")]
        assert_equal(f"{label}, steps of the metrics file", seen, list(range(1, step + 1)))
        assert_equal(f"{label}, completed steps", result.train.steps_completed, step)
        assert_same(label, after.student.state_dict(), before.student.state_dict())


@given(failure=st.sampled_from([RuntimeError, KeyboardInterrupt]), stop=st.sampled_from([STEPS, 3, 5]))
@example(failure=KeyboardInterrupt, stop=5)
def falsify_failure_after_the_training_loses_no_step(subject: Any, failure: type[BaseException], stop: int) -> None:
    """stop: the step after which a callback stops the run, before the last evaluation fails."""
    failures = [failure("in the evaluation")]

    def measure(run: Any) -> dict[str, Any]:
        if failures:
            raise failures.pop()
        return {}

    with scratch() as directory:
        callbacks = [acting(lambda: Action.STOP, step=stop)]
        when = f"stopped after step {stop}, with {failure.__name__} in the evaluation"
        uninterrupted = run_to_end(subject, settings(directory, "uninterrupted", save_every=4), callbacks)
        try:
            run_to_end(subject, settings(directory, "cut", save_every=4), callbacks, measure=measure)
        except (RuntimeError, KeyboardInterrupt) as error:
            newest = saved_steps(directory / "cut" / "checkpoints", "student")[-1:]
            assert_equal(f"{when}, step of the newest checkpoint", newest, [stop])
            is_request = failure is KeyboardInterrupt
            has_note = any("--resume latest" in note for note in getattr(error, "__notes__", []))
            is_expected = isinstance(error, StopRequestedError) == is_request and has_note != is_request
            assert is_expected, f"{when}: {error!r}; note about --resume: {has_note}"
        cut = run_to_end(subject, settings(directory, "cut", save_every=4, resume=LATEST), callbacks, measure=measure)
        assert_same_end(when, directory, ("cut", cut), ("uninterrupted", uninterrupted))
        batches = [batch for batch in cut[0].batches.requested if batch != FIRST]
        assert_equal(f"{when}, batches that the resumed run requests", batches, [])


KILLS = 3
"""Number of times that a run is killed, each time before a random operation on a file."""


@given(seed=st.integers(0, 999))
def falsify_killed_run_ends_like_an_uninterrupted_one(subject: Any, seed: int) -> None:
    numbers, kills = random.Random(seed), 0
    with scratch() as directory:
        uninterrupted = run_to_end(subject, settings(directory, "uninterrupted"))
        for _ in range(KILLS):
            # Kill the run before a random operation on a file; the next iteration resumes it.
            operation = numbers.randrange(3, 40)
            outcome = ended_before(
                operation, directory / "cut", lambda: run_with_resumes(subject, directory, "cut", [], force=True)
            )
            assert outcome in ("killed", "done"), f"killed before file operation {operation}: {outcome}"
            if outcome == "done":
                break
            kills += 1
        assert kills > 1, f"with seed {seed}, the run is killed {kills} times; expected at least 2"
        cut = run_with_resumes(subject, directory, "cut", [], force=True)
        assert_same_end(f"killed with seed {seed}", directory, ("cut", cut), ("uninterrupted", uninterrupted))
        seen = [line["step"] for line in lines(directory, "cut")]
        assert_equal(f"killed with seed {seed}, steps of the metrics file", seen, list(range(1, STEPS + 1)))


class StopRequests(Callback):
    """Callback and source of stop requests.

    Its call returns True `times` times in every one of these steps. Its hook returns SKIP in the step `skipped`.
    seen: the steps so far. ends: number of calls of `on_train_end`.
    """

    def __init__(self, steps: list[int], times: int, skipped: int) -> None:
        self.remaining, self.skipped = dict.fromkeys(steps, times), skipped
        self.seen, self.ends = list[int](), 0

    def __call__(self) -> bool:
        remaining = self.remaining.get(self.seen[-1], 0)
        self.remaining[self.seen[-1]] = remaining - 1
        return remaining > 0

    def on_optimizer_step(self, context: Any) -> None:
        self.seen.append(context.step)

    def on_step_end(self, context: Any) -> Action | None:
        return Action.SKIP if context.step == self.skipped else None

    def on_train_end(self, context: Any) -> None:
        self.ends += 1


@given(
    stops=st.lists(st.integers(1, STEPS), min_size=1, max_size=3, unique=True),
    times=st.integers(1, 2),
    skipped=st.integers(0, 2),
    save_every=st.integers(1, 3),
    log_every=st.integers(1, 3),
    eval_every=st.integers(0, 2),
)
@example(stops=[1], times=2, skipped=0, save_every=2, log_every=1, eval_every=0)
@example(stops=[1], times=1, skipped=1, save_every=3, log_every=1, eval_every=2)
def falsify_stopped_run_is_saved_and_goes_on(
    subject: Any, stops: list[int], times: int, skipped: int, save_every: int, log_every: int, eval_every: int
) -> None:
    """After every stop request, the run is saved and ends; the last resumed run ends like an uninterrupted run.

    times: number of requests in a step: a resumed run may get a request before it makes a step. All evaluations have
    the same score, so only the first one is saved as the best.
    """
    with scratch() as directory:
        every: dict[str, Any] = {"save_every": save_every, "log_every": log_every, "eval_every": eval_every}
        every["best_metric"] = "eval/score"
        control = StopRequests([], 0, skipped)
        uninterrupted = run_to_end(subject, settings(directory, "uninterrupted", **every), [control], measure=_score)
        stops = sorted(step for step in stops if step <= len(control.seen))
        stopper, resume = StopRequests(stops, times, skipped), {}
        for step in [step for step in stops for _ in range(times)]:
            label = f"request to stop in step {step}"
            try:
                run_to_end(subject, settings(directory, "cut", **every, **resume), [stopper], stopper, _score)
            except StopRequestedError:
                saved = saved_steps(directory / "cut" / "checkpoints", "student")
                assert_equal(f"{label}, last step, last checkpoint", [*stopper.seen[-1:], *saved[-1:]], [step, step])
            else:
                raise AssertionError(f"{label}: the run does not stop")
            resume = {"resume": LATEST}
        cut = run_to_end(subject, settings(directory, "cut", **every, **resume, force=True), [stopper], stopper, _score)
        when = f"saved every {save_every} steps and {times} requests to stop in each of {stops}"
        assert_equal(f"{when}, calls of on_train_end", stopper.ends, len(stops) * times + 1)
        assert_same_end(when, directory, ("cut", cut), ("uninterrupted", uninterrupted))
        steps = [line["step"] for line in lines(directory, "cut")]
        due = [step for step in stopper.seen if step % log_every == 0 or (eval_every and step % eval_every == 0)]
        assert_equal(f"{when}, steps of the metrics file", steps, due)


def _score(run: Any) -> dict[str, Any]:
    return {"score": MetricSum(1.0, 1)}


@given(step=st.none() | st.integers(1, STEPS), limit=st.integers(2, STEPS))
@example(step=2, limit=4)
def falsify_rewound_run_ends_like_an_uninterrupted_one(subject: Any, step: int | None, limit: int) -> None:
    with scratch() as directory:
        start = None if step is None else min(step, limit)
        uninterrupted = run_to_end(subject, settings(directory, "uninterrupted", keep=0))
        run_to_end(subject, settings(directory, "cut", max_steps=limit, keep=0))
        place = directory / "cut" / "checkpoints"
        before = file_digests(place)
        resume = {} if start is None else {"resume": place / f"student-step{start}"}
        cut = run_to_end(subject, settings(directory, "cut", rewind=True, force=True, keep=0, **resume))
        when = f"rewound from {limit} to {start}"
        assert_same_end(when, directory, ("cut", cut), ("uninterrupted", uninterrupted))
        assert_equal(f"{when}, checkpoints", saved_steps(place, "student"), list(range(1, STEPS + 1)))
        aside = place / "student-rewound-1"
        expected = list(range((start or 0) + 1, limit + 1))
        assert_equal(f"{when}, checkpoints that are set aside", saved_steps(aside, "student"), expected)
        for number in expected:
            read_checkpoint(aside / f"student-step{number}")
        moved = {name: content for name, content in file_digests(aside).items() if "/" in name}
        assert moved.items() <= before.items(), f"{when}, moved files have other contents: {sorted(moved)}"


REFUSED_REWINDS: dict[str, tuple[Callable[[Path], object], dict[str, Any], str]] = {
    "another seed": (lambda step: None, {"seed": 5}, "seed was 0 and is 5"),
    "a missing step": (shutil.rmtree, {}, "student-step1"),
    "a damaged step": (lambda step: (step / "rank-00000.safetensors").write_bytes(b""), {}, "student-step1"),
}


def falsify_refused_rewind_moves_nothing(subject: Any) -> None:
    for kind, (change, changes, words) in REFUSED_REWINDS.items():
        with scratch() as directory:
            run_to_end(subject, settings(directory, "out", max_steps=3, keep=0))
            step = directory / "out" / "checkpoints" / "student-step1"
            change(step)
            _assert_refused(subject, kind, directory, [words], resume=step, rewind=True, keep=0, **changes)


CHANGED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "seed": ({"seed": 3}, ["seed was 0 and is 3"]),
    "accumulation": ({"accumulate": 1}, ["accumulate was 3 and is 1"]),
    "learning rate": ({"lr": 0.5}, ["lr was 0.1 and is 0.5"]),
    "clip": ({"clip": 0.5}, ["clip was null and is 0.5"]),
    "temperature": ({"temperature": 3.0}, ["temperature was 2.0 and is 3.0"]),
    "dtype": ({"dtype": "bfloat16"}, ['dtype was "float32" and is "bfloat16"']),
}
MANY: dict[str, Any] = {"documents": "pad", "group_by_length": True, "separator": "--", "batch_size": 4, "length": 32}
MANY |= {"epochs": 3, "warmup": 5, "schedule": "linear", "lr_end": 0.5, "layer_decay": 0.5, "optimizer": "adafactor"}
MANY |= {"divergence": "jensen_shannon", "beta": 0.25, "ce_weight": 0.1, "kd_weight_end": 0.5, "temperature_end": 3.0}
MANY |= {"anneal": "cosine", "anneal_warmup": 1, "turns": "last", "accept_depth": 2, "best_mode": "max"}
CHANGED["many at once"] = (MANY, [f"{name} was " for name in MANY])
"""By case: changed settings, and words of the refusal."""
CONDITIONS = {
    "world_size": 1,
    "strategy": "one process",
    "device": "cpu",
    "torch": torch.__version__,
    "threads": torch.get_num_threads(),
    "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    "teacher_sha256": hashlib.sha256(save(Model(3, seed=2).state_dict())).hexdigest(),
}
"""Conditions that are not settings, with their values in this process."""


@given(kind=st.sampled_from([*CHANGED, *CONDITIONS]))
def falsify_drift_is_refused(subject: Any, kind: str) -> None:
    with scratch() as directory:
        run_to_end(subject, settings(directory, "out", max_steps=2))
        changes, expected = CHANGED.get(kind, ({}, []))
        teacher = _teacher if kind == "teacher_sha256" else _no_teacher
        if kind in CONDITIONS:
            expected = [f'{kind} was "other" and is {json.dumps(CONDITIONS[kind])}']
            _edit(directory, lambda tree: tree["conditions"].update({kind: "other"}))
        _assert_refused(subject, kind, directory, expected, teacher=teacher, error=CheckpointError, **changes)


def _teacher() -> Model:
    return Model(3, seed=2)


def _no_teacher() -> Any:
    raise AssertionError("a teacher is created before the refusal, which may take hours")


LATER_SETTINGS = (
    *("chat_template data_cache data_cache_gib eval_data eval_rows lora lora_merge lora_options lr_decay".split()),
    "lr_end",
    *("schedule shard_teacher teacher_device_map teacher_outputs template_options turns weights layer_decay".split()),
    *("optimizer optimizer_options group_by_length skip_invalid_rows attn_implementation compile quantization".split()),
    *("revision teacher_revision trust_remote_code on_policy on_policy_end answer_tokens answer_temperature".split()),
    *("answer_top_p served_model teacher_top_k".split()),
)
"""Settings that version 0.2 or the first revisions of version 0.3 lacked."""


@given(changed=st.sampled_from([{"compile": True}, {"layer_decay": 0.5}]))
def falsify_checkpoint_of_an_older_version_is_resumed(subject: Any, changed: dict[str, Any]) -> None:
    """A checkpoint without later settings and without requests of callbacks can be resumed, with default settings."""

    def remove_new_entries(tree: dict[str, Any]) -> None:
        for name in LATER_SETTINGS:
            tree["conditions"].pop(name, None)
        del tree["state"]["train"]["position"]["asked"]

    with scratch() as directory:
        uninterrupted = run_to_end(subject, settings(directory, "uninterrupted"))
        run_to_end(subject, settings(directory, "out", max_steps=2))
        _edit(directory, remove_new_entries)
        (name, value), when = *changed.items(), "resumed from an older checkpoint"
        words = [f"{name} was {json.dumps(FIELDS[name].default)} and is {json.dumps(value)}"]
        _assert_refused(subject, f"{when} with {changed}", directory, words, **changed)
        cut = run_to_end(subject, settings(directory, "out", resume=LATEST, force=True))
        assert_same_end(when, directory, ("out", cut), ("uninterrupted", uninterrupted))


CHANGEABLE = {"max_steps": 3, "log_every": 2, "save_every": 2, "keep": 1, "project_to_steps": 9, "eval_every": 2}


def falsify_free_settings_may_change(subject: Any) -> None:
    with scratch() as directory:
        run_to_end(subject, settings(directory, "out", max_steps=2))
        _, result = run_to_end(subject, settings(directory, "out", resume=LATEST, force=True, **CHANGEABLE))
    steps = result.train.steps_completed
    assert_equal(f"steps of a run resumed with {CHANGEABLE}", steps, 3)


def _checkpoint(directory: Path) -> Path:
    return directory / "out" / "checkpoints" / "student-step2"


def _edit(directory: Path, change: Callable[[dict[str, Any]], object]) -> None:
    edited(_checkpoint(directory) / "manifest.json", change)


def _position(**changes: Any) -> Callable[[Path], object]:
    return lambda d: _edit(d, lambda tree: tree["state"]["train"]["position"].update(changes))


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
    "a file with the name of a checkpoint": lambda d: _checkpoint(d).with_name("student-step5").touch(),
    "a later checkpoint": lambda d: shutil.copytree(_checkpoint(d), _checkpoint(d).with_name("student-step3")),
}
MISSPELLED = {"lastest": "did you mean 'latest'?", "Best": "did you mean 'best'?"}
"""By misspelled name: words of its refusal, which must come before the refusal of a run without --force."""
WORDS = {
    "a damaged checkpoint": ["--rewind --resume", "student-step1"],
    "a file with the name of a checkpoint": ["step 5 cannot be saved there"],
}
"""Words of the refusal, for some cases of `UNFIT`."""


@given(kind=st.sampled_from([*UNFIT, *MISSPELLED]))
def falsify_unfit_checkpoint_is_refused(subject: Any, kind: str) -> None:
    with scratch() as directory:
        run_to_end(subject, settings(directory, "out", max_steps=2))
        if kind in MISSPELLED:
            _assert_refused(subject, kind, directory, [MISSPELLED[kind]], resume=Path(kind), force=False)
            return
        UNFIT[kind](directory)
        resume = _checkpoint(directory) if kind == "a later checkpoint" else Path("latest")
        _assert_refused(subject, kind, directory, WORDS.get(kind, []), resume=resume)


def falsify_run_that_starts_over_is_refused_beside_checkpoints(subject: Any) -> None:
    with scratch() as directory:
        words = ["checkpoints up to step 2;", "--resume latest"]
        with suppress(KeyboardInterrupt):
            run_to_end(subject, settings(directory, "out"), [Cut(2)])
        for force in (False, True):
            label = f"a run with force {force}"
            _assert_refused(subject, label, directory, words, resume=None, error=CheckpointError, force=force)


def _assert_refused(
    subject: Any,
    kind: str,
    directory: Path,
    words: list[str],
    teacher: Callable[[], Model] = _teacher,
    resume: Path | None = LATEST,
    error: type[Exception] = TrainerError,
    **changes: Any,
) -> None:
    chosen = settings(directory, "out", **{"resume": resume, "force": True, **changes})
    with unchanged_files(directory, kind):
        assert_refused(kind, lambda: run_to_end(subject, chosen, teacher=teacher), *words, kind=error)
