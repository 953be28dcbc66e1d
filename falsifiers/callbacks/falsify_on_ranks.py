"""Attacks on the hooks of a run of four ranks, on two machines of two. The subject is `pipeline.distill`."""

import json
import math
import os
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.callbacks.lifecycle import HOOKS, Script, lifecycle
from falsifiers.rank_runs.launched import assert_no_error, launched
from falsifiers.resume.runs import Noisy, own, settings
from falsifiers.support.scratch import scratch
from reference_trainer import Callback, MetricSum, Observer

RANKS, MACHINE = 4, 2
FIELDS = ("hook", "step", "epoch", "micro_batch", "rank", "local_rank", "world_size", "is_world_process_zero")
FIELDS += ("is_local_process_zero", "metrics", "validation_metrics", "batch_metrics", "loss", "best_loss", "tokens")
FIELDS += ("sequences", "learning_rate", "gradient_norm", "checkpoint_path", "memory", "total_steps", "run", "attempt")
OF_A_RANK = ("rank", "local_rank", "is_world_process_zero", "is_local_process_zero", "batch_metrics", "memory")
RATES = ("steps_per_s", "tokens_per_s", "flops_per_s")
TOKENS = 8
"""Scored by a micro-batch of a rank: two rows of five tokens, the last of which predicts nothing."""


def recorder(kind: type[Callback], path: Path) -> Callback:
    """Return a callback or an observer that writes the context of every event to a file, at the end of the run."""
    seen: list[dict[str, Any]] = []

    def hook(event: str) -> Any:
        def record(self: Any, context: Any) -> None:
            each = {name: getattr(context, name) for name in FIELDS}
            each["metrics"] = {name: value for name, value in context.metrics.items() if name not in RATES}
            seen.append({name: dict(value) if name.endswith("metrics") else value for name, value in each.items()})
            if event == "on_train_end":
                path.write_text(json.dumps(seen))

        return record

    return type("Recorder", (kind,), {event: hook(event) for event in HOOKS})()


KINDS = (Callback, Observer)


def _seen(subject: Any, accumulate: int, every: tuple[int, int, int]) -> list[list[list[Any]]]:
    """Return the contexts of each rank of a run of two epochs, for a callback and an observer."""

    class Evaluated(own(subject)):  # the subject is any module
        def evaluate(self) -> dict[str, Any]:
            return {"score": MetricSum(6.0, 4)}

    with scratch() as directory:

        def callbacks(rank: int) -> list[Callback]:
            os.environ["LOCAL_RANK"] = str(rank % MACHINE)  # this process is a fork
            return [recorder(kind, directory / f"{kind.__name__}-{rank}") for kind in KINDS]

        log, evaluate, save = every
        chosen = {"log_every": log, "eval_every": evaluate, "save_every": save, "best_metric": "eval/score"}
        given = settings(directory, "out", strategy="ddp", accumulate=accumulate, **chosen)
        assert_no_error(f"{RANKS} ranks", launched(Evaluated, given, RANKS, callbacks))
        files = [[directory / f"{kind.__name__}-{rank}" for rank in range(RANKS)] for kind in KINDS]
        return [[json.loads(file.read_text()) for file in each] for each in files]


@given(accumulate=st.sampled_from([3, 2, 4]), log=st.integers(1, 2), save=st.sampled_from([2, 1]))
def falsify_every_hook_is_called_on_every_rank(subject: Any, accumulate: int, log: int, save: int) -> None:
    every = (log, 2 * save, save)  # an evaluated step is saved anyway
    steps, left = divmod(Noisy.batches, accumulate)
    script = Script(2, steps + bool(left), None, ((),), accumulate, left or accumulate, every)
    expected = [(call.event, call.epoch, call.step, call.micro_batch) for call in lifecycle(script).calls]
    for kind, ranks in zip(KINDS, _seen(subject, accumulate, every), strict=True):
        for rank, seen in enumerate(ranks):
            _assert_calls(f"{kind.__name__} on rank {rank}", rank, seen, expected, ranks[0])
        assert {each["hook"] for each in ranks[0]} == set(HOOKS), "the run does not call every hook"
        _assert_loss_of_all_ranks(ranks, log)


def _assert_calls(where: str, rank: int, seen: list[Any], expected: list[Any], first: list[Any]) -> None:
    calls = [(each["hook"], each["epoch"], each["step"], each["micro_batch"]) for each in seen]
    assert calls == expected, f"{where}: the calls are {calls}; expected {expected}"
    for each, of_first in zip(seen, first, strict=True):
        at = f"{where}, {each['hook']} of step {each['step']}"
        _assert_place(at, rank, each)
        _assert_values(at, each)
        common, theirs = ({name: x for name, x in some.items() if name not in OF_A_RANK} for some in (each, of_first))
        assert common == theirs, f"{at}: {common}; rank 0 has {theirs}"


def _assert_place(where: str, rank: int, seen: dict[str, Any]) -> None:
    expected = {"world_size": RANKS, "rank": rank, "local_rank": rank % MACHINE}
    expected |= {"is_world_process_zero": rank == 0, "is_local_process_zero": rank % MACHINE == 0, "run": "out"}
    got = {name: seen[name] for name in expected}
    assert got == expected, f"{where}: {got}; expected {expected}"


def _assert_values(where: str, seen: dict[str, Any]) -> None:
    """Assert those values that ranks have from each other; `falsify_within_steps` has where each is present."""
    scores, tokens = seen["validation_metrics"], seen["batch_metrics"].get("tokens", TOKENS)
    path = seen["checkpoint_path"]
    assert scores in ({}, {"eval/score": 1.5}) and tokens == TOKENS, f"{where}: {scores}, {tokens} tokens"
    assert path is None or path.endswith(f"checkpoints/student-step{seen['step']}"), f"{where}: {path}"
    assert seen["memory"], f"{where}: no memory is in use"


def _assert_loss_of_all_ranks(ranks: list[list[dict[str, Any]]], log: int) -> None:
    """Assert that the loss of a step is the mean over the micro-batches of all ranks, which have other data."""
    batches: dict[int, list[float]] = {}
    for seen in ranks:
        for each in (each for each in seen if each["hook"] == "on_after_backward"):
            batches.setdefault(each["step"], []).append(each["batch_metrics"]["loss"])
    for each in (each for each in ranks[-1] if each["hook"] == "on_log"):
        losses = batches[each["step"]]
        assert len(set(losses)) == len(losses), f"step {each['step']}: ranks have the same losses {losses}"
        mean = math.fsum(losses) / len(losses)
        assert math.isclose(each["loss"], mean, rel_tol=1e-5), f"step {each['step']}: {each['loss']}; expected {mean}"
        steps = range(each["step"] - log + 1, each["step"] + 1)
        tokens = sum(len(batches[step]) for step in steps)
        mean = math.fsum(loss for step in steps for loss in batches[step]) / tokens
        assert math.isclose(each["metrics"]["loss"], mean, rel_tol=1e-5), f"metrics of step {each['step']}: {each}"
