"""Attacks on `reference-trainer gradcheck`. The subject is the command line, `reference_trainer.cli`."""

from __future__ import annotations

import importlib
import io
import math
from typing import Any
from unittest import mock

import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.distill_command.cases import Failing, command

GRADIENTS = importlib.import_module("reference_trainer.distillation.gradcheck")
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
    """Exit code 0 if no difference at five temperatures exceeds rounding or is NaN, else 1."""
    asked, left = list[Any](), iter(differences)

    def difference(student: torch.Tensor, teacher: torch.Tensor, labels: torch.Tensor, **weights: float) -> float:
        asked.append((student, teacher, labels, weights))
        return next(left)

    out = io.StringIO() if heard else Failing(OSError(28, "No space left on device"))
    sizes = {"--device": "cpu", "--vocabulary": vocabulary, "--positions": positions, "--seed": seed}
    with mock.patch.object(GRADIENTS, "relative_difference", difference):
        ended = command(subject, "gradcheck", *(str(part) for pair in sizes.items() for part in pair), out=out)
    agree = all(each <= GRADIENTS.AGREE for each in differences)
    case = f"differences {differences}"
    assert ended.code == (0 if agree else 1), f"{case}: exit code {ended.code}; expected {0 if agree else 1}"
    lines = [
        f"temperature {t:5.2f}: relative difference {d:.2e}" for t, d in zip(TEMPERATURES, differences, strict=True)
    ]
    last = f"{'agree' if agree else 'DIFFER'} on cpu: at most 1e-10 is rounding"
    assert ended.said.splitlines() == ([*lines, last] if heard else []), f"{case}: {ended.said!r}"
    _assert_asked(asked, (2, positions, vocabulary), seed)


def _assert_asked(asked: list[Any], shape: tuple[int, ...], seed: int) -> None:
    """The same float64 logits at all temperatures: normal, deviation 3, of one seed; labels in the vocabulary."""
    generator = torch.Generator().manual_seed(seed)
    expected = [3 * torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2)]
    for student, teacher, labels, _ in asked:
        assert torch.equal(student, expected[0]) and torch.equal(teacher, expected[1]), f"other logits for seed {seed}"
        assert labels.shape == shape[:2] and 0 <= labels.min() and labels.max() < shape[2], f"labels {labels}"
    seen = [weights for *_, weights in asked]
    weights = [{"temperature": temperature, "ce_weight": 0.3, "kd_weight": 0.7} for temperature in TEMPERATURES]
    assert seen == weights, f"asked for the differences at {seen}; expected {weights}"


@given(name=st.sampled_from(["auto", "cpu", "cuda", "cuda:1"]), named=st.booleans())
def falsify_check_runs_on_the_device(subject: Any, name: str, named: bool) -> None:
    """On the given device or `auto`, named in the last line; two sequences of 64 positions, 512 tokens."""
    asked = list[Any]()
    meta = mock.Mock(return_value=torch.device("meta"))

    def difference(student: torch.Tensor, teacher: torch.Tensor, labels: torch.Tensor, **weights: float) -> float:
        asked.append((student, teacher, labels))
        return 0.0

    placement = importlib.import_module("reference_trainer.models.placement")
    with (
        mock.patch.object(GRADIENTS, "relative_difference", difference),
        mock.patch.object(placement, "usable_device", meta),
    ):
        ended = command(subject, "gradcheck", *(["--device", name] if named else []))
    meta.assert_called_once_with(name if named else "auto")
    assert ended.said.splitlines()[-1] == "agree on meta: at most 1e-10 is rounding", f"{ended.said!r}"
    seen = {(part.device.type, tuple(part.shape[:2])) for parts in asked for part in parts}
    assert seen == {("meta", (2, 64))} and asked[0][0].shape[2] == 512, f"asked of {seen} and {asked[0][0].shape}"


def falsify_labels_cover_every_token(subject: Any) -> None:
    """Over 100 positions, every token of a small vocabulary is a label; another seed gives other labels."""
    seen = list[Any]()

    def difference(student: Any, teacher: Any, labels: torch.Tensor, **weights: float) -> float:
        seen.append(labels)
        return 0.0

    with mock.patch.object(GRADIENTS, "relative_difference", difference):
        for seed in ("0", "1", "0"):
            command(subject, "gradcheck", "--vocabulary", "3", "--positions", "100", "--seed", seed)
    assert len(seen) == 3 * len(TEMPERATURES), f"three checks asked for {len(seen)} differences; expected five each"
    first, other, again = seen[0], seen[5], seen[10]
    assert first.unique().tolist() == [0, 1, 2], f"labels of three tokens are {first.unique().tolist()}"
    assert torch.equal(first, again) and not torch.equal(first, other), "labels don't follow from the seed"


def falsify_gradcheck_checks_the_trainers_gradient(subject: Any) -> None:
    """Exit code 0; 1 with one factor of temperature too many in the gradient; 2 for unusable devices and sizes."""
    right = GRADIENTS.losses.kd_logit_gradient

    def wrong(*tensors: torch.Tensor, temperature: float, **weights: float) -> torch.Tensor:
        return temperature * right(*tensors, temperature=temperature, **weights)

    assert command(subject, "gradcheck").code == 0, "a right gradient differs"
    with mock.patch.object(GRADIENTS.losses, "kd_logit_gradient", wrong):
        assert command(subject, "gradcheck").code == 1, "a gradient with a temperature too many agrees"
    for device in ("abacus", "meta", "cuda:999"):
        ended = command(subject, "gradcheck", "--device", device)
        assert ended.code == 2 and ended.complaints.startswith("error: ") and repr(device) in ended.complaints, (
            f"{device}: {ended}"
        )
    for flags in (("--vocabulary", "1"), ("--positions", "0"), ("--seed", "-1"), ("--vocabulary", "1000001")):
        assert command(subject, "gradcheck", *flags).code == 2, f"gradcheck takes {flags}"
