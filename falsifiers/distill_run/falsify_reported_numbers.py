"""Attacks on the numbers reported by a whole distillation: predicates over `reference_run.py::distil`.

Result, manifest and trace are compared with the steps, and with the losses of `falsifiers/support/decoder_oracle.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from falsifiers.distill_run.run_oracles import LENGTH, batches_of, held_back_of


def falsify_held_back_metrics_match_exported_model(run: Any) -> None:
    expected, tokens = held_back_of(run, "out")
    manifest = json.loads((run.directory / "out/manifest.json").read_text())["held_back"]
    reported = {"the result": run.result["held_back"]}
    reported["the manifest"] = {name: [value["sum"], value["count"]] for name, value in manifest.items()}
    # Logits are float32, wrong by some 1e-6: a sum over many bytes is wrong by less than that share of its bytes. The
    # divergence is the smaller number, made of the same logits.
    for where, held_back in reported.items():
        assert set(expected) < set(held_back), f"{where} reports {sorted(held_back)}"
        for name, nats in expected.items():
            seen, count = held_back[name]
            assert count == tokens, f"{where} counts {count} held-back bytes for {name}; there are {tokens}"
            assert abs(seen - nats) <= 1e-5 * tokens, (
                f"{where} says {seen / tokens:.7f} nats per byte of {name}, recomputed in float64 from the exported "
                f"weights it is {nats / tokens:.7f}"
            )


def _planned(run: Any) -> Iterator[tuple[str, int, int, int]]:
    """Yield event, step, epoch and scored tokens of a run without a stop."""
    sizes = batches_of(run)
    step = epoch = tokens = 0
    yield "on_train_begin", step, epoch, tokens
    while step < run.arguments["steps"]:
        epoch += 1
        yield "on_epoch_begin", step, epoch, tokens
        for size in sizes[: run.arguments["steps"] - step]:
            step, tokens = step + 1, tokens + size * (LENGTH - 1)
            yield "on_step_end", step, epoch, tokens
        yield "on_epoch_end", step, epoch, tokens
    yield "on_train_end", step, epoch, tokens


def falsify_reported_numbers_match_steps(run: Any) -> None:
    """Each event is in the trace before the next one, as callbacks received it; the optimizer took as many steps."""
    lines = [json.loads(line) for line in (run.directory / "trace.jsonl").read_text().splitlines()]
    traced = [tuple(line[name] for name in ("event", "step", "epoch", "tokens")) for line in lines]
    planned = list(_planned(run))
    differ = next((k for k, pair in enumerate(zip(traced, planned, strict=False)) if pair[0] != pair[1]), None)
    assert differ is None and len(traced) == len(planned), (
        f"the trace has {len(traced)} events, planned were {len(planned)}; the first that differ: "
        f"{traced[differ or -1 :][:2]}, planned {planned[differ or -1 :][:2]}"
    )
    taken = run.result["optimizer"]["steps"]
    assert taken == run.arguments["steps"], f"the optimizer took {taken} steps; asked for {run.arguments['steps']}"
    for number, (line, event) in enumerate(zip(lines, run.trace, strict=True)):
        received = {name: event[name] for name in line} | {"lines before": number}
        seen = line | {"lines before": event["traced"]}
        assert seen == received, f"the trace has {seen}, a callback received {received}"
    _assert_result(run.result["train"], [event for event in run.trace if event["event"] == "on_step_end"])


def _assert_result(train: dict[str, Any], steps: list[dict[str, Any]]) -> None:
    losses = [event["loss"] for event in steps]
    expected = {"initial_loss": losses[0], "final_loss": losses[-1], "best_loss": min(losses), "finite": True}
    expected |= {"steps_completed": len(steps), "tokens": steps[-1]["tokens"], "stopped": False}
    assert train == expected, f"the result says {train}; the steps {expected}"
