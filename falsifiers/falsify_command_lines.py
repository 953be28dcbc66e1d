"""Attacks on what the command line hands on and what it prints. The subject is `reference_trainer.cli`."""

from __future__ import annotations

import importlib
import io
import itertools
import math
import re
import tempfile
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from hypothesis import given
from hypothesis import strategies as st

import reference_trainer
from falsifiers.command_cases import Failing, command, distilling, result

WHOLE = re.compile(r"([0-9]+) steps in ([0-9]+\.[0-9])s \(([0-9]+\.[0-9]{2}) step/s, ([0-9,]+) tokens/s\): (.*)")
LOSSES = st.none() | st.floats(0, 1e6) | st.just(math.inf)


def falsify_settings_arrive_from_everywhere(subject: Any) -> None:
    """Flags, variables and a file meet in the settings of the one run, and the lines of the run are printed."""
    runs = list[Any]()

    def run(settings: Any, *, lines: Any) -> Any:
        runs.append(settings)
        lines.write("a line of the run")
        return result(go=True)

    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "settings.toml")
        file.write_text("width = 32\nlayers = 3\n", encoding="utf-8")
        flags = ["--smoke", "5", "--config", str(file), "--force"]
        ended = distilling(subject, run, *flags, REFERENCE_TRAINER_SEED="7", REFERENCE_TRAINER_LAYERS="2")
    assert len(runs) == 1, f"{len(runs)} runs; expected one: {ended}"
    seen = {name: getattr(runs[0], name) for name in ("smoke", "force", "width", "layers", "seed", "epochs")}
    expected = {"smoke": 5, "force": True, "width": 32, "layers": 2, "seed": 7, "epochs": 3}
    assert seen == expected, f"the run has the settings {seen}; expected {expected}"
    assert ended.said == "a line of the run\n", f"the run wrote one line, and standard output is {ended.said!r}"


def _told(subject: Any, done: Any) -> list[str]:
    """The lines after a run with this result."""
    ended = distilling(subject, lambda settings, *, lines: done)
    assert ended.code == 0 and ended.complaints == "", f"after {done}: exit code {ended.code}, {ended.complaints!r}"
    return ended.said.splitlines()


@given(
    first=LOSSES,
    last=LOSSES,
    steps=st.integers(0, 10**6),
    elapsed_s=st.floats(0, 1e6),
    tokens=st.integers(0, 10**12),
    stopped=st.booleans(),
)
def falsify_the_last_words_tell_what_ran(
    subject: Any, first: float | None, last: float | None, steps: int, elapsed_s: float, tokens: int, stopped: bool
) -> None:
    """Steps, time, steps and tokens per second, and the losses if a token was scored; a run in no time is of a ns."""
    ran = {"steps_completed": steps, "elapsed_s": elapsed_s, "steps_per_s": steps / 7, "tokens": tokens}
    done = result(train={**ran, "initial_loss": first, "final_loss": first and last, "stopped": stopped})
    if first is not None:
        done.train.final_loss = last = last if last is not None else first
    said = _told(subject, done)
    found = WHOLE.fullmatch(said[0])
    assert found, f"{said[0]!r} isn't of the form that is documented"
    per_s = Fraction(tokens) / Fraction(max(elapsed_s, 1e-9))
    assert int(found[1]) == steps and found[2] == f"{elapsed_s:.1f}" and found[3] == f"{steps / 7:.2f}", said[0]
    told = int(found[4].replace(",", ""))
    assert abs(told - per_s) <= Fraction(1, 2) + per_s / 10**12, f"{tokens} tokens in {elapsed_s} s: {said[0]!r}"
    losses = "no token was scored" if first is None else f"distillation loss {first:.4f} to {last:.4f}"
    ended = losses + (", stopped by a callback" if stopped else "")
    assert found[5] == ended, f"the line ends in {found[5]!r}; expected {ended!r}"


@given(
    held=st.dictionaries(
        st.sampled_from(["cross_entropy", "kl", "other"]), st.tuples(st.floats(0, 1e9), st.integers(1, 10**9))
    )
)
def falsify_held_back_text_is_told_per_byte(subject: Any, held: dict[str, tuple[float, int]]) -> None:
    """A line for each metric, with its mean over the bytes, and at the very end where the results lie."""
    metrics = {name: SimpleNamespace(sum=total, count=count) for name, (total, count) in held.items()}
    done = result(held_back=metrics, output=Path("a/place"))
    said = _told(subject, done)
    lines = [
        f"held-back {name}: {total / count:.4f} nats per byte over {count} bytes"
        for name, (total, count) in held.items()
    ]
    assert said[1:] == [*lines, "wrote a/place"], f"the last lines are {said[1:]}; expected {lines} and where it lies"


def falsify_help_and_version_are_to_be_had(subject: Any) -> None:
    """`--version` names program and version, `-h` and `--help` print a usage; what is no command is refused."""
    version = command(subject, "--version")
    expected = f"reference-trainer, version {reference_trainer.__version__}\n"
    assert (version.code, version.said) == (0, expected), f"--version gives {version}; expected {expected!r}"
    for name, flag in itertools.product(("", "distill", "gradcheck", "schema"), ("-h", "--help")):
        ended = command(subject, *([name] if name else []), flag)
        usage = f"Usage: reference-trainer {name} ".replace("  ", " ")
        assert ended.code == 0 and ended.said.startswith(usage), f"{name} {flag} gives {ended}; expected {usage!r}"
    for name in ("distil", "", "schema x"):
        ended = command(subject, *name.split())
        assert ended.code == 2 and "Usage: reference-trainer" in ended.complaints, f"{name!r} gives {ended}"


def falsify_the_schema_is_printed_as_it_is(subject: Any) -> None:
    """Byte for byte what `reference_trainer.trace.schema` says, and nothing else."""
    ended, text = command(subject, "schema"), importlib.import_module("reference_trainer.trace").schema()
    assert (ended.code, ended.said, ended.complaints) == (0, text, ""), f"{ended}; expected {text!r}"


GRADIENTS = importlib.import_module("reference_trainer.gradients")
TEMPERATURES = [0.25, 1.0, 2.0, 4.0, 20.0]
DIFFERENCES = st.sampled_from([0.0, 1e-16, GRADIENTS.AGREE]) | st.sampled_from(
    [math.nextafter(GRADIENTS.AGREE, 1), 0.5, math.inf, math.nan]
)


@given(
    differences=st.tuples(*[DIFFERENCES] * 5),
    vocabulary=st.integers(2, 9),
    positions=st.integers(1, 5),
    seed=st.integers(0, 10**18),
    heard=st.booleans(),
)
def falsify_gradients_agree_at_every_temperature(
    subject: Any, differences: tuple[float, ...], vocabulary: int, positions: int, seed: int, heard: bool
) -> None:
    """0 if none of five temperatures is beyond rounding, NaN is; else 1. On logits of the shape that was asked for."""
    asked, left = list[Any](), iter(differences)

    def difference(student: torch.Tensor, teacher: torch.Tensor, labels: torch.Tensor, **weights: float) -> float:
        asked.append((student, teacher, labels, weights))
        return next(left)

    out = io.StringIO() if heard else Failing(OSError(28, "No space left on device"))
    sizes = {"--vocabulary": vocabulary, "--positions": positions, "--seed": seed}
    with mock.patch.object(GRADIENTS, "relative_difference", difference):
        ended = command(subject, "gradcheck", *(str(part) for pair in sizes.items() for part in pair), out=out)
    agree = all(each <= GRADIENTS.AGREE for each in differences)
    case = f"differences {differences}"
    assert ended.code == (0 if agree else 1), f"{case}: exit code {ended.code}; expected {0 if agree else 1}"
    lines = [
        f"temperature {t:5.2f}: relative difference {d:.2e}" for t, d in zip(TEMPERATURES, differences, strict=True)
    ]
    last = f"{'agree' if agree else 'DIFFER'}: at most 1e-10 is rounding"
    assert ended.said.splitlines() == ([*lines, last] if heard else []), f"{case}: {ended.said!r}"
    _assert_asked(asked, (2, positions, vocabulary), seed)


def _assert_asked(asked: list[Any], shape: tuple[int, ...], seed: int) -> None:
    """The same drawn logits in float64 at all temperatures: normal, three wide, of one seed, and labels within them."""
    generator = torch.Generator().manual_seed(seed)
    expected = [3 * torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2)]
    for student, teacher, labels, _ in asked:
        assert torch.equal(student, expected[0]) and torch.equal(teacher, expected[1]), f"other logits for seed {seed}"
        assert labels.shape == shape[:2] and 0 <= labels.min() and labels.max() < shape[2], f"labels {labels}"
    seen = [weights for *_, weights in asked]
    weights = [{"temperature": temperature, "ce_weight": 0.3, "kd_weight": 0.7} for temperature in TEMPERATURES]
    assert seen == weights, f"asked for the differences at {seen}; expected {weights}"


def falsify_labels_of_the_check_are_any_token(subject: Any) -> None:
    """Over a hundred positions every token of a small vocabulary is a label, and another seed draws others."""
    seen = list[Any]()

    def difference(student: Any, teacher: Any, labels: torch.Tensor, **weights: float) -> float:
        seen.append(labels)
        return 0.0

    with mock.patch.object(GRADIENTS, "relative_difference", difference):
        for seed in ("0", "1", "0"):
            command(subject, "gradcheck", "--vocabulary", "3", "--positions", "100", "--seed", seed)
    first, other, again = seen[0], seen[5], seen[10]
    assert first.unique().tolist() == [0, 1, 2], f"labels of three tokens are {first.unique().tolist()}"
    assert torch.equal(first, again) and not torch.equal(first, other), "labels don't follow from the seed"


def falsify_gradcheck_is_of_the_trainers_gradient(subject: Any) -> None:
    """By itself 0; with a temperature too many in the gradient 1. What can't be computed here is refused."""
    right = GRADIENTS.losses.kd_logit_gradient

    def wrong(*tensors: torch.Tensor, temperature: float, **weights: float) -> torch.Tensor:
        return temperature * right(*tensors, temperature=temperature, **weights)

    assert command(subject, "gradcheck").code == 0, "a right gradient differs"
    with mock.patch.object(GRADIENTS.losses, "kd_logit_gradient", wrong):
        assert command(subject, "gradcheck").code == 1, "a gradient with a temperature too many agrees"
    for device in ("abacus", "meta", "cuda:999"):
        ended = command(subject, "gradcheck", "--device", device)
        assert ended.code == 2 and ended.complaints.startswith(f"error: device is '{device}'"), f"{device}: {ended}"
    for flags in (("--vocabulary", "1"), ("--positions", "0"), ("--seed", "-1"), ("--vocabulary", "1000001")):
        assert command(subject, "gradcheck", *flags).code == 2, f"gradcheck takes {flags}"
