"""Attacks on what a whole distillation did: predicates over `falsifiers/distill_runs.py::distil`.

The files are read with safetensors and json, and losses are worked out by `falsifiers/decoder_oracle.py`.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import torch
from safetensors.torch import load_file

from falsifiers import decoder_oracle as oracle
from falsifiers.distill_runs import CHOSEN, SHAPE, digests

LENGTH = SHAPE["length"]
HEADS = {"student": 1, "teacher": 2}  # about 32 features to a head


def _text(run: Any) -> bytes:
    path = run.result["settings"]["data"]
    return Path(path or Path(__file__).parents[1] / "reference_trainer/text/python-topics.txt").read_bytes()


def _parts(run: Any) -> tuple[bytes, bytes]:
    """What may be trained on, and the last tenth, rounded up."""
    text = _text(run)
    cut = len(text) - -(-len(text) // 10)
    return text[:cut], text[cut:]


def _sequences(part: bytes) -> oracle.Array:
    count = (len(part) - 1) // (LENGTH - 1)
    return np.array([list(part[k * (LENGTH - 1) :][:LENGTH]) for k in range(count)])


def _weights(run: Any, whose: str) -> dict[str, oracle.Array]:
    if whose == "untrained":
        read = load_file(run.directory / "untrained.safetensors")
        return {name: value.double().numpy() for name, value in read.items()}
    return oracle.weights_in(run.directory / (run.result["cached"] if whose == "teacher" else "out"))


def _held_back(run: Any, student: str, every: int = 1) -> tuple[dict[str, float], int]:
    """Sums in nats over each `every`-th held-back sequence, in float64 and from files; and over how many bytes."""
    weights, teacher = _weights(run, student), _weights(run, "teacher")
    tokens = _sequences(_parts(run)[1])[::every]
    sums = [
        oracle.losses(oracle.logits(weights, 1, part), oracle.logits(teacher, HEADS["teacher"], part), part)
        for part in oracle.chunks(tokens)
    ]
    return {
        "cross_entropy": math.fsum(x for x, _ in sums),
        "kl": math.fsum(x for _, x in sums),
    }, tokens[:, 1:].size


def falsify_the_student_learns(run: Any) -> None:
    """The loss of training falls by a quarter at least, each held-back one by a tenth from the untrained student's."""
    train = run.result["train"]
    assert train["final_loss"] < 0.75 * train["initial_loss"], (
        f"the loss went from {train['initial_loss']:.4f} to {train['final_loss']:.4f} in "
        f"{train['steps_completed']} steps"
    )
    (before, tokens), (after, _) = (_held_back(run, student, every=8) for student in ("untrained", "out"))
    for name in before:
        assert after[name] < 0.9 * before[name], (
            f"held-back {name} went from {before[name] / tokens:.4f} to {after[name] / tokens:.4f} nats per byte in "
            f"{train['steps_completed']} steps; expected a fall by more than 10 %"
        )


def falsify_held_back_numbers_are_those_of_the_exported_model(run: Any) -> None:
    """Sum and count in the result and in the manifest, worked out from the exported weights in float64."""
    expected, tokens = _held_back(run, "out")
    manifest = json.loads((run.directory / "out/manifest.json").read_text())["held_back"]
    reported = {"the result": run.result["held_back"]}
    reported["the manifest"] = {name: [value["nats"], value["tokens"]] for name, value in manifest.items()}
    # Logits are float32, wrong by some 1e-6: a sum over many bytes is wrong by less than that share of its bytes. The
    # divergence is the smaller number, made of the same logits.
    for where, held_back in reported.items():
        assert set(held_back) == set(expected), f"{where} reports {sorted(held_back)}"
        for name, nats in expected.items():
            seen, count = held_back[name]
            assert count == tokens, f"{where} counts {count} held-back bytes for {name}; there are {tokens}"
            assert abs(seen - nats) <= 1e-5 * tokens, (
                f"{where} says {seen / tokens:.7f} nats per byte of {name}, recomputed in float64 from the exported "
                f"weights it is {nats / tokens:.7f}"
            )


def falsify_the_first_loss_is_that_of_the_settings(run: Any) -> None:
    """ce_weight·CE + kd_weight·τ²·KL of the untrained student on the first batch; and the rates warm up."""
    tokens = np.array(run.result["first_batch"])
    student = oracle.logits(_weights(run, "untrained"), HEADS["student"], tokens)
    teacher = oracle.logits(_weights(run, "teacher"), HEADS["teacher"], tokens)
    tau, count = CHOSEN["temperature"], tokens[:, 1:].size
    hard, soft = oracle.losses(student, teacher, tokens, tau)
    expected = (CHOSEN["ce_weight"] * hard + CHOSEN["kd_weight"] * tau**2 * soft) / count
    seen = run.result["train"]["initial_loss"]
    # float32 logits, and 256 terms of float32 arithmetic a byte, stay within 1e-5 of a few nats.
    assert math.isclose(seen, expected, rel_tol=1e-5), (
        f"the first loss is {seen:.7f} nats per byte; with the settings' temperature and weights it is {expected:.7f}"
    )
    # All are the steps of every epoch: max_steps cuts a run off and doesn't compress it. A teacher's are its own.
    planned = run.result["settings"]["epochs"] * len(_batches(run))
    totals = {"rates": (run.arguments["steps"], planned), "teacher_rates": (run.arguments["teacher_steps"],) * 2}
    for kind, (steps, total) in totals.items():
        rates, seen_rates = [_rate(step, total) for step in range(1, steps + 1)], run.result["optimizer"][kind]
        assert len(seen_rates) == len(rates) and np.allclose(seen_rates, rates, rtol=1e-12, atol=0), (
            f"the optimizer's {len(seen_rates)} {kind} begin with {seen_rates[:9]}; expected {len(rates)}: {rates[:9]}"
        )


def _rate(step: int, total: int) -> float:
    """A line up to the peak in the last step of the warm-up, then half a cosine down to a tenth in step `total`."""
    peak, warmup = CHOSEN["lr"], CHOSEN["warmup"]
    if step <= warmup:
        return peak * step / warmup
    return peak * (0.55 + 0.45 * math.cos(math.pi * (step - warmup) / (total - warmup)))


def falsify_every_weight_is_learned(run: Any) -> None:
    """Each tensor moved by a thousand times what rounding it to float32 could; the optimizer held them all."""
    untrained, trained = _weights(run, "untrained"), _weights(run, "out")
    optimizer = run.result["optimizer"]
    assert not optimizer["missing"], f"the optimizer never held {optimizer['missing']}"
    assert set(untrained) == set(trained), f"exported are {sorted(trained)}; the student has {sorted(untrained)}"
    for name, before in untrained.items():
        change, rounding = np.linalg.norm(trained[name] - before), np.linalg.norm(before) * 2.0**-24
        assert change > 1000 * rounding, f"{name} moved by {change:.3g}; rounding alone is {rounding:.3g}"


def falsify_the_teacher_is_untouched(run: Any) -> None:
    """Bit for bit the one that was kept before the distillation began: weights, answers; without gradients.

    And not in the student's optimizer, whose weight decay alone would move it.
    """
    teacher = run.result["teacher"]
    moved = [name for name, digest in teacher["kept"].items() if teacher["weights"].get(name) != digest]
    assert not moved, f"the teacher's {moved} differ from those that were kept before the distillation"
    assert teacher["answers"] == teacher["answers_kept"], "the teacher answers otherwise than the one that was kept"
    assert teacher["with_gradient"] == [], f"the teacher's {teacher['with_gradient']} have gradients"
    assert run.result["optimizer"]["strangers"] == [], (
        f"the student's optimizer holds {run.result['optimizer']['strangers']}"
    )


def falsify_a_seed_decides_the_weights(run: Any) -> None:
    """Two runs of one seed end at the same bits, whether their teacher was trained or cached; another seed's elsewhere.

    On CUDA gradients of repeated tokens add up in no fixed order; that rounding, grown over a few steps of AdamW, stays
    below a hundredth of the way.
    """
    allowed, repeated = (0.0 if run.device == "cpu" else 0.01), run.result["repeated"]
    for name, what in (("again", "two runs of one seed"), ("afresh", "a run with a cached teacher and one without")):
        assert repeated[name] <= allowed, (
            f"{what} end apart by {repeated[name]:.3g} of the way from the start; allowed {allowed}"
        )
    assert repeated["other"] > 0.5, f"two seeds end apart by only {repeated['other']:.3g} of the way from the start"


def falsify_what_is_exported_is_what_was_trained(run: Any) -> None:
    """Every tensor in the file is the student's, bit for bit, as is the model that is read back, and its logits."""
    student = run.result["student"]
    written = load_file(run.directory / "out/model.safetensors")
    assert set(written) == set(student["weights"]), (
        f"the file holds {sorted(written)}, the student {sorted(student['weights'])}"
    )
    for name, digest in digests(_Holder(written)).items():
        assert digest == student["weights"][name], (
            f"{name} in the file, {written[name].dtype}, isn't the trained student's"
        )
    assert student["read_back"] == student["weights"], "the model that is read back has other weights"
    assert student["logits_read_back"] == student["logits"], "the model that is read back has other logits"


class _Holder(torch.nn.Module):
    """Tensors by the names that they have in a file."""

    def __init__(self, tensors: dict[str, torch.Tensor]) -> None:
        super().__init__()
        self.tensors = tensors

    def state_dict(self, *arguments: Any, **others: Any) -> Any:
        return self.tensors


def falsify_the_export_describes_itself(run: Any) -> None:
    """Three files and no other; the manifest has settings, seed, versions, and digests, worked out anew here."""
    out = run.directory / "out"
    names = sorted(path.name for path in out.iterdir())
    assert names == ["config.json", "manifest.json", "model.safetensors"], f"the directory holds {names}"
    config = json.loads((out / "config.json").read_text())
    shape = {name: SHAPE[name] for name in ("layers", "width")}
    expected: dict[str, Any] = {"vocab_size": 256, "heads": 1, "model_type": "reference_trainer.decoder", **shape}
    assert config == expected, f"config.json says {config}; expected {expected}"
    manifest = json.loads((out / "manifest.json").read_text(), parse_constant=_no_json)
    for name, value in _described(run, out).items():
        assert manifest.get(name) == value, f"the manifest's {name} is {manifest.get(name)!r}; expected {value!r}"
    for name in ("reference_trainer", "torch", "python"):
        assert manifest["versions"].get(name), f"the manifest lacks the version of {name}: {manifest['versions']}"
    for name, value in run.result["train"].items():
        seen = manifest["result"][name]
        assert seen == value, f"the manifest's {name} is {seen!r}, the result's {value!r}"


def _no_json(name: str) -> None:
    raise AssertionError(f"the manifest holds {name}, which is no JSON")


def _described(run: Any, out: Path) -> dict[str, Any]:
    files = {name: (out / name).read_bytes() for name in ("model.safetensors", "config.json")}
    return {
        "settings": run.result["settings"],
        "seed": run.arguments["seed"],
        "data_sha256": hashlib.sha256(_text(run)).hexdigest(),
        "sha256": {name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
    }


def falsify_the_process_is_left_as_it_was(run: Any) -> None:
    """Random numbers of torch, device, Python and NumPy; torch's defaults and flags; handlers, folder, environment."""
    state = run.result["state"]
    for name, before in state["before"].items():
        assert state["after"][name] == before, f"{name}: {before} before the runs, {state['after'][name]} after them"
    assert state["seeded"] == [], f"the run seeded the generators of all CUDA devices with {state['seeded'][:3]}"


def _batches(run: Any) -> list[int]:
    """How many sequences each batch of an epoch has."""
    count = (len(_parts(run)[0]) - 1) // (LENGTH - 1)
    return [min(SHAPE["batch_size"], count - start) for start in range(0, count, SHAPE["batch_size"])]


def _planned(run: Any) -> Iterator[tuple[str, int, int, int]]:
    """Event, step, epoch and scored tokens of a run that nobody stops."""
    sizes = _batches(run)
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


def falsify_the_trace_tells_the_run(run: Any) -> None:
    """Every line fits the schema; events, steps and tokens are those planned, the numbers those that callbacks heard.

    As many steps as the optimizer took, and each event in the file before the next one happens.
    """
    lines = [json.loads(line) for line in (run.directory / "trace.jsonl").read_text().splitlines()]
    validator = jsonschema.Draft202012Validator(json.loads(run.result["schema"]))
    for number, line in enumerate(lines, 1):
        problems = [error.message for error in validator.iter_errors(line)]
        assert not problems, f"line {number} of the trace doesn't fit its schema: {problems}"
    told = [tuple(line[name] for name in ("event", "step", "epoch", "tokens")) for line in lines]
    planned = list(_planned(run))
    differ = next((k for k, pair in enumerate(zip(told, planned, strict=False)) if pair[0] != pair[1]), None)
    assert differ is None and len(told) == len(planned), (
        f"the trace has {len(told)} events, planned were {len(planned)}; the first that differ: "
        f"{told[differ or -1 :][:2]}, planned {planned[differ or -1 :][:2]}"
    )
    taken = run.result["optimizer"]["steps"]
    assert taken == run.arguments["steps"], f"the optimizer took {taken} steps; asked for {run.arguments['steps']}"
    for number, (line, event) in enumerate(zip(lines, run.trace, strict=True)):
        heard = {name: value for name, value in event.items() if name != "traced"}
        assert line == heard, f"the trace says {line}, a callback heard {heard}"
        assert event["traced"] == number, (
            f"{number} events had happened, the trace held {event['traced']} lines by then"
        )


def falsify_reported_losses_are_those_of_the_steps(run: Any) -> None:
    """First, last and smallest loss of the steps, and their numbers; an epoch's loss is the mean over its tokens."""
    steps = [event for event in run.trace if event["event"] == "on_step_end"]
    losses, train = [event["loss"] for event in steps], run.result["train"]
    expected = {
        "initial_loss": losses[0],
        "final_loss": losses[-1],
        "best_loss": min(losses),
        "finite": True,
        "stopped": False,
        "steps_completed": len(steps),
        "tokens": steps[-1]["tokens"],
    }
    for name, value in expected.items():
        assert train[name] == value, f"the result's {name} is {train[name]!r}; that of the steps is {value!r}"
    for event, smallest in zip(steps, itertools.accumulate(losses, min), strict=True):
        seen = event["best_loss"]
        assert seen == smallest, f"after step {event['step']} the best loss is {seen!r}; the smallest was {smallest!r}"
    begun = 0
    for event in (e for e in run.trace if e["event"] == "on_epoch_end"):
        own = [(e["loss"], e["tokens"]) for e in steps if e["epoch"] == event["epoch"]]
        counts = np.diff([begun, *(tokens for _, tokens in own)])
        mean, begun = float(np.dot([loss for loss, _ in own], counts) / counts.sum()), own[-1][1]
        assert math.isclose(event["loss"], mean, rel_tol=1e-9), (
            f"the loss of epoch {event['epoch']} is {event['loss']!r}; the mean over its tokens is {mean!r}"
        )
