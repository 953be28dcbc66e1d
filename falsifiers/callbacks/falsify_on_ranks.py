"""Attacks on the hooks of a run of four ranks, on two machines of two. The subject is `pipeline.distill`."""

import json
import math
import os
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.callbacks.lifecycle import HOOKS, Script, lifecycle
from falsifiers.rank_runs.falsify_runs import assert_no_error, launched
from falsifiers.resume.runs import Noisy, V, settings, small_distillation
from falsifiers.support.assertions import assert_equal
from falsifiers.support.runs import scratch
from reference_trainer import Callback, MetricSum, Observer

RANKS, MACHINE = 4, 2
PLACE = ("rank", "local_rank", "is_world_process_zero", "is_local_process_zero", "world_size", "run")
OF_A_RANK = (*PLACE[:4], "batch_metrics", "memory")
COMMON = "hook step epoch micro_batch metrics validation_metrics loss best_loss tokens sequences learning_rate".split()
COMMON += ["gradient_norm", "checkpoint_path", "total_steps", "attempt", *PLACE[4:]]
RATES = ("steps_per_s", "tokens_per_s", "flops_per_s")
TOKENS = 8
"""Scored tokens of a rank's micro-batch: two rows of five tokens, where the last token of a row predicts nothing."""
BATCH_FLOPS = 2 * 10 * sum(passes * width * (V + 2 * width) for width, passes in ((3, 1), (5, 3)))
"""Operations of a micro-batch of a rank: ten tokens, two layers and a head; the student has three passes."""
PATIENCE_S = 120
"""Of a rank in a collective: on busy cores, four processes wait long for their turn, and none of the faults hangs."""
KINDS = (Callback, Observer)
Event = dict[str, Any]


def recorder(kind: type[Callback], path: Path) -> Callback:
    """Return a callback or an observer that writes the context of every event to a file, at the end of the run."""
    events: list[Event] = []

    def record(self: Any, context: Any) -> None:
        event = {name: getattr(context, name) for name in (*OF_A_RANK, *COMMON)}
        event |= {name: dict(value) for name, value in event.items() if name.endswith("metrics")}
        per_s = {name: event["metrics"].pop(name) for name in RATES if name in event["metrics"]}
        event["flops_of_a_step"] = per_s["flops_per_s"] / per_s["steps_per_s"] if "flops_per_s" in per_s else None
        events.append(event)
        if context.hook == "on_train_end":
            path.write_text(json.dumps(events))

    return type("Recorder", (kind,), dict.fromkeys(HOOKS, record))()


def _recorded(subject: Any, accumulate: int, every: tuple[int, int, int]) -> list[list[list[Event]]]:
    """Return the events of each rank of a run of two epochs, for a callback and an observer."""

    class Evaluated(small_distillation(subject)):  # the subject is any module
        def evaluate(self) -> dict[str, Any]:
            return {"score": MetricSum(6.0, 4)}

    with scratch() as directory:

        def callbacks(rank: int) -> list[Callback]:
            os.environ["LOCAL_RANK"] = str(rank % MACHINE)  # this process is a fork
            return [recorder(kind, directory / f"{kind.__name__}-{rank}") for kind in KINDS]

        intervals = dict(zip(("log_every", "eval_every", "save_every"), every, strict=True))
        options = {"strategy": "ddp", "accumulate": accumulate, "best_metric": "eval/score", **intervals}
        chosen = settings(directory, "out", **options, rank_timeout=PATIENCE_S)
        assert_no_error(f"{RANKS} ranks", launched(Evaluated, chosen, RANKS, callbacks, limit_s=2 * PATIENCE_S))
        return [[json.loads((directory / f"{k.__name__}-{r}").read_text()) for r in range(RANKS)] for k in KINDS]


@given(accumulate=st.sampled_from([3, 2, 4]), log=st.integers(1, 2), save=st.sampled_from([2, 1]))
def falsify_every_hook_is_called_on_every_rank(subject: Any, accumulate: int, log: int, save: int) -> None:
    every = (log, 2 * save, save)  # an evaluated step is saved anyway
    steps, left = divmod(Noisy.batches, accumulate)
    script = Script(2, steps + bool(left), None, ((),), accumulate, left or accumulate, every)
    calls = [(call.event, call.epoch, call.step, call.micro_batch) for call in lifecycle(script).calls]
    for kind, ranks in zip(KINDS, _recorded(subject, accumulate, every), strict=True):
        for rank, events in enumerate(ranks):
            where = f"{kind.__name__} on rank {rank}"
            seen = [tuple(event[name] for name in ("hook", "epoch", "step", "micro_batch")) for event in events]
            assert_equal(f"{where}: calls", seen, calls)
            for event, of_rank_0 in zip(events, ranks[0], strict=True):
                _assert_values(f"{where}, {event['hook']} of step {event['step']}", rank, event, of_rank_0)
        assert_equal("hooks", {event["hook"] for event in ranks[0]}, set(HOOKS))
        _assert_loss_of_all_ranks(ranks, log)
        counted = [event["flops_of_a_step"] for events in ranks for event in events if event["hook"] == "on_log"]
        expected = RANKS * min(accumulate, Noisy.batches) * BATCH_FLOPS
        wrong = [flops for flops in counted if flops is None or not math.isclose(flops, expected, rel_tol=1e-9)]
        assert counted and not wrong, f"steps of {RANKS} ranks are counted as {wrong[:2]} FLOP; expected {expected}"


def _assert_values(where: str, rank: int, event: Event, of_rank_0: Event) -> None:
    """Assert the place, and values that ranks have from each other; `falsify_within_steps` has where these are."""
    expected = [rank, rank % MACHINE, rank == 0, rank % MACHINE == 0, RANKS, "out"]
    assert_equal(f"{where}: {PLACE}", [event[name] for name in PLACE], expected)
    scores, tokens, path = event["validation_metrics"], event["batch_metrics"].get("tokens", TOKENS), "checkpoint_path"
    assert scores in ({}, {"eval/score": 1.5}) and tokens == TOKENS, f"{where}: {scores}, {tokens} tokens"
    assert str(event[path]).endswith(("None", f"checkpoints/student-step{event['step']}")), f"{where}: {event[path]}"
    assert event["memory"], f"{where}: no memory is in use"
    common, first = ({name: values[name] for name in COMMON} for values in (event, of_rank_0))
    assert_equal(f"{where}: values of the run", common, first)


def _assert_loss_of_all_ranks(ranks: list[list[Event]], log: int) -> None:
    """Assert that the loss of a step is the mean over the micro-batches of all ranks, which have other data."""
    batches: dict[int, list[float]] = {}
    for event in (event for events in ranks for event in events if event["hook"] == "on_after_backward"):
        batches.setdefault(event["step"], []).append(event["batch_metrics"]["loss"])
    for event in (event for event in ranks[-1] if event["hook"] == "on_log"):
        step = event["step"]
        assert len(set(batches[step])) == len(batches[step]), f"step {step}: ranks have the same losses {batches[step]}"
        logged = [loss for number in range(step - log + 1, step + 1) for loss in batches[number]]
        # Every micro-batch scores as many tokens, so means need no weights. Losses are float32.
        for name, seen, losses in (
            ("loss", event["loss"], batches[step]),
            ("metric", event["metrics"]["loss"], logged),
        ):
            mean = math.fsum(losses) / len(losses)
            assert math.isclose(seen, mean, rel_tol=1e-5), f"{name} of step {step}: {seen}; expected {mean}"
