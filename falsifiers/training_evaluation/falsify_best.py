"""Attacks on the best checkpoint of a run. The subject is `pipeline.distill`, or has its names."""

import json
import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from falsifiers.resume.runs import STEPS, Cut, assert_same_end, ended, resumed_to_the_end, settings
from falsifiers.support.oracles import assert_refused
from falsifiers.support.runs import file_digests, refused, scratch, small
from falsifiers.teacher_outputs.falsify_outputs import written
from falsifiers.training_evaluation.falsify_ranks import measured
from reference_trainer import Callback, EarlyStopping, MetricSum

EVERY = st.integers(1, 3)


def scripted(scores: Sequence[float | None]) -> Callable[[Any], dict[str, Any]]:
    """Return a measure that gives the scores of steps 1, 2, ... as the metric `score`, and nothing for None."""

    def measure(run: Any) -> dict[str, Any]:
        step = run.watched.step
        score = scores[(step or 1) - 1]
        return {} if score is None else {"score": MetricSum(score, 1)}

    return measure


class Counting(Callback):
    """Callback that tells the distillation which step it is in."""

    def __init__(self) -> None:
        self.step = 0

    def attach(self, pipeline: Any) -> None:
        pipeline.watched = self

    def on_step_begin(self, context: Any) -> None:
        self.step = context.step


SCORES = st.sampled_from([1.0, 1.25, 2.0, -1.0, math.nan, math.inf, -math.inf, None])


def best_so_far(scores: Sequence[float | None], every: int, highest: bool, delta: float) -> list[int | None]:
    """Return, for each step, the best evaluated one up to it."""
    best: tuple[int, float] | None = None
    found: list[int | None] = []
    for step, score in enumerate(scores, 1):
        if step % every == 0 and score is not None and math.isfinite(score):
            gain = math.inf if best is None else (score - best[1]) * (1 if highest else -1)
            best = (step, score) if gain > delta else best
        found.append(None if best is None else best[0])
    return found


@given(
    scores=st.lists(SCORES, min_size=STEPS, max_size=STEPS),
    every=EVERY,
    save_every=st.integers(0, 4),
    keep=st.integers(0, 2),
    highest=st.booleans(),
    delta=st.sampled_from([0.0, 0.25]),
    cuts=st.lists(st.integers(1, STEPS), max_size=2, unique=True),
)
@example(scores=[1.0, -1.0] + [1.0] * 4, every=1, save_every=1, keep=2, highest=False, delta=0.0, cuts=[3, 5])
@example(scores=[2.0, 1.0, 2.0, 1.25, 1.0, -1.0], every=2, save_every=3, keep=1, highest=False, delta=0.0, cuts=[3])
@example(scores=[math.nan, 2.0, 1.0, 2.0, 2.0, 1.25], every=1, save_every=0, keep=1, highest=True, delta=0.0, cuts=[6])
def falsify_best_step_is_saved_and_kept(
    subject: Any,
    scores: list[Any],
    every: int,
    save_every: int,
    keep: int,
    highest: bool,
    delta: float,
    cuts: list[int],
) -> None:
    with scratch() as directory:
        others = {"eval_every": every, "save_every": save_every, "keep": keep, "best_metric": "eval/score"}
        others |= {"best_mode": "max" if highest else "min", "best_min_delta": delta}
        resumed_to_the_end(subject, directory, "out", [Counting(), Cut(*cuts)], measure=scripted(scores), **others)
        best = best_so_far(scores, every, highest, delta)
        there: list[int] = []
        for step in range(1, STEPS + 1):
            if (save_every and (step % save_every == 0 or step == STEPS)) or best[step - 1] == step:
                there.append(step)
                last = there[-keep:] if keep else there
                there = [each for each in there if each in last or each == best[step - 1]]
        place = directory / "out" / "checkpoints"
        seen = sorted(int(p.name.rsplit("step")[1]) for p in place.glob("student-step*"))
        when = f"scores {scores}, evaluated every {every}, saved every {save_every}, keep {keep}, cut after {cuts}"
        assert seen == there, f"{when}: the checkpoints {seen} are left; expected {there}"
        _assert_best(when, place, best[-1])


def _assert_best(when: str, place: Path, best: int | None) -> None:
    """Assert that the newest manifest and the link name the best step."""
    newest = max(place.glob("student-step*"), key=lambda path: int(path.name.rsplit("step")[1]), default=None)
    recorded = None if newest is None else json.loads((newest / "manifest.json").read_text())["best"]
    seen = None if recorded is None else recorded["step"]
    assert seen == best, f"{when}: the newest manifest has the best {recorded}; expected step {best}"
    link = place / "student-best"
    target = link.resolve().name if link.is_symlink() else None
    assert target == (None if best is None else f"student-step{best}"), f"{when}: the link refers to {target}"


def falsify_run_resumes_from_the_best(subject: Any) -> None:
    scores = [3.0, 1.0, 2.0, 2.0, 2.0, 2.0]
    with scratch() as directory:
        others = {"eval_every": 1, "best_metric": "eval/score"}
        straight = ended(subject, settings(directory, "straight", **others), [Counting()], measure=scripted(scores))
        ended(subject, settings(directory, "cut", max_steps=4, **others), [Counting()], measure=scripted(scores))
        chosen = settings(directory, "cut", resume=Path("best"), rewind=True, force=True, **others)
        cut = ended(subject, chosen, [Counting()], measure=scripted(scores))
        step = cut[0].resumed.position.step
        assert step == 2, f"the best of the scores {scores[:4]} is step 2; --resume best goes on after step {step}"
        assert_same_end("resumed from the best", directory, ("cut", cut), ("straight", straight))


def falsify_unknown_metric_is_refused(subject: Any) -> None:
    with scratch() as directory:
        chosen = settings(directory, "out", eval_every=2, best_metric="hard_loss")
        words = ("hard_loss", "best_metric", "eval/hard_loss", "eval/agreement")
        call = partial(ended, subject, chosen, measure=measured)
        assert_refused("a run without its best metric", call, *words)


MISSPELT = ["hard_loss", "eval/hard_los", "eval/gradient_norm"]


OF_WHOLE_TEACHER = ["eval/kl_at_1", "eval/agreement", "eval/accept_length", "eval/teacher_loss"]


@given(
    misspelt=st.sampled_from(MISSPELT),
    absent=st.sampled_from(OF_WHOLE_TEACHER),
    every=st.sampled_from([0, 1]),
    smoke=st.booleans(),
)
def falsify_unknown_metric_is_refused_at_the_start(
    subject: Any, misspelt: str, absent: str, every: int, smoke: bool
) -> None:
    others = {"eval_every": every, "smoke": 1 if smoke else None}
    with scratch() as directory:
        chosen = small(directory, out=directory / "out", best_metric=misspelt, **others)
        (directory / "text").unlink()
        _assert_refused(subject, directory, chosen, KNOWN)
    with scratch() as directory:
        outputs = written(directory, "outputs", top_k=3)
        others |= {"accept_depth": 2, "teacher_outputs": outputs}
        chosen = small(directory, out=directory / "out", best_metric=absent, **others)
        _assert_refused(subject, directory, chosen, [f"(choose from {OF_TOP_K})"])
        message = refused(subject, chosen.model_copy(update={"best_metric": "eval/soft_loss"}))
        assert not message, f"eval/soft_loss of top-k outputs: {message}"
        drafts = {"accept_depth": 2, "eval_every": 1, "best_metric": "eval/accept_length"}
        message = refused(subject, small(directory, out=directory / "drafts", **drafts))
        assert not message, f"eval/accept_length of a whole teacher: {message}"
        chosen = chosen.model_copy(
            update={"best_metric": "eval/hard_loss", "eval_every": 1, "out": directory / "stopped"}
        )
        message = refused(subject, chosen, callbacks=[EarlyStopping(absent)])
        words = (repr(absent), "EarlyStopping", f"(choose from {OF_TOP_K})")
        assert all(word in message for word in words), f"early stopping on {absent}: {message or 'it was accepted'}"


def _assert_refused(subject: Any, directory: Path, chosen: Any, known: list[str]) -> None:
    before, metric = file_digests(directory), chosen.best_metric
    message = refused(subject, chosen)
    words = (repr(metric), "best_metric", *known)
    assert all(word in message for word in words), f"{metric!r}: {message or 'it was accepted'}"
    assert file_digests(directory) == before, f"a refused run wrote {sorted(file_digests(directory))}"


OF_TOP_K = "eval/hard_loss, eval/soft_loss, eval/student_perplexity, eval/token_accuracy"
KNOWN = ["eval/agreement", "eval/hard_loss", "eval/kl_at_1", "eval/kl_at_T", "eval/student_perplexity"]
