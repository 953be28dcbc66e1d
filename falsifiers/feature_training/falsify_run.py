"""Attacks on runs that match hidden states, also of a whole distillation, and on what they refuse."""

import io
import math
from typing import Any

import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import nn

from falsifiers.callbacks.real_run import after_steps
from falsifiers.feature_matching.cases import FeatureCase, feature_cases
from falsifiers.feature_training.windows import FeatureWindow, feature_windows
from falsifiers.support.fake_cuda import fake_cuda
from falsifiers.support.oracles import assert_refused
from falsifiers.support.scratch import scratch
from falsifiers.support.small_runs import small
from falsifiers.support.windows import V
from reference_trainer import Lines
from reference_trainer.distillation.providers import ModuleStudent
from reference_trainer.plan.annealing import Annealed
from reference_trainer.plan.schedule import Schedule


def _metrics(
    subject: Any, window: FeatureWindow, weight: float | Annealed, every: int, device: str = "cpu"
) -> list[dict[str, float]]:
    """Return the metrics of each logged step of a run that takes each micro-batch in a step of its own."""
    callbacks, seen = after_steps(lambda context: dict(context.metrics))
    batches, weights = window.case.batches(device=device), window.case.weights
    subject.train(
        window.teacher(device),
        ModuleStudent(window.student(device), V),
        lambda epoch, k: batches[k - 1],
        None,
        schedule=Schedule(epochs=1, steps_per_epoch=len(batches), log_every=every),
        objective=subject.Objective(
            temperature=weights.temperature,
            ce_weight=weights.ce_weight,
            kd_weight=weights.kd_weight,
            feature_weight=weight,
        ),
        learning_rate=lambda step: 0.0,
        callbacks=callbacks,
        features=window.matching(device),
    )
    return [metrics for metrics in seen if metrics]


@given(window=feature_windows())
def falsify_the_metric_is_a_mean_over_tokens(subject: Any, device: str, window: FeatureWindow) -> None:
    assume(window.case.count())
    steps = len(window.case.split[0])
    (metrics,) = _metrics(subject, window, window.feature_weight, steps, device)
    expected = window.feature_sum() / window.case.count()
    assert "feature" in metrics, f"the metrics of {steps} steps are {sorted(metrics)}; expected a feature too"
    assert math.isclose(metrics["feature"], expected, rel_tol=1e-12, abs_tol=1e-14), (
        f"the feature of {steps} steps is {metrics['feature']!r}; expected {expected!r}, a mean over scored tokens"
    )
    assert metrics["feature_weight"] == window.feature_weight, f"feature_weight is {metrics['feature_weight']}"


@given(window=feature_windows(), end=st.floats(0.25, 4))
def falsify_the_weight_follows_its_schedule(subject: Any, window: FeatureWindow, end: float) -> None:
    start, steps = window.feature_weight, len(window.case.split[0])
    for ends in ((start, end), (0.0, end), (0.0, 0.0)):
        weight = Annealed(*ends, "linear", name="feature_weight")
        for step, metrics in enumerate(_metrics(subject, window, weight, 1), start=1):
            now = ends[0] + (ends[1] - ends[0]) * (step - 1) / max(steps - 1, 1)
            what = f"step {step} of {steps}, weight from {ends[0]} to {ends[1]}"
            if now == 0 or "loss" not in metrics:
                assert "feature" not in metrics, f"{what}: metrics are {sorted(metrics)}; expected no feature"
                assert ("feature_weight" in metrics) == (now > 0), f"{what}: metrics are {sorted(metrics)}"
                continue
            both = window.case.ce_weight * metrics["hard_loss"] + window.case.kd_weight * metrics["soft_loss"]
            expected = both + now * metrics["feature"]
            assert math.isclose(metrics["feature_weight"], now, rel_tol=1e-12), f"{what} is {metrics['feature_weight']}"
            assert math.isclose(metrics["loss"], expected, rel_tol=1e-12, abs_tol=1e-12), (
                f"{what}: the loss is {metrics['loss']}; expected {expected}"
            )


def _copies(parameters: Any) -> list[torch.Tensor]:
    return [each.detach().clone() for each in parameters]


def _decays(work: Any) -> list[bool]:
    """Return which parameters of the projections the optimizer of a run lets decay."""
    groups = work.make_optimizer(work.features.parameters).param_groups
    decay = {each: group["weight_decay"] for group in groups for each in group["params"]}
    return [decay[each] > 0 for each in work.features.parameters]


RISING = {"feature_weight": 0.0, "feature_weight_end": 2.0, "anneal": "linear"}


@given(
    seed=st.integers(0, 9),
    distance=st.sampled_from(["cosine", "l2"]),
    dtype=st.sampled_from(["float32", "float64"]),
    weight=st.sampled_from([RISING, {}]),
)
def falsify_a_projection_is_made_trained_and_not_exported(
    subject: Any, seed: int, distance: str, dtype: str, weight: dict[str, Any]
) -> None:
    first, moved = [], []
    with scratch() as root:
        for process_seed in (1, 2):
            torch.manual_seed(process_seed)
            settings = {"seed": seed, "feature_distance": distance, "dtype": dtype, "feature_weight": 1.0, **weight}
            settings |= {"teacher_width": 32, "lr": 0.01, "warmup": 0, "out": root / "out", "force": True}
            with subject.Distillation(small(root, **settings), lines=Lines(io.StringIO())) as work:
                work.prepare()
                shapes = [(tuple(each.shape), str(each.dtype)) for each in work.features.parameters]
                kind = f"torch.{dtype}"
                assert shapes == [((32, 16), kind), ((32,), kind)], f"the projection has {shapes}; expected 16 to 32"
                decays = _decays(work)
                assert decays == [True, False], f"weight and bias of the projection decay: {decays}; not the bias"
                first.append(_copies(work.features.parameters))
                teacher = _copies(work.teacher.parameters())
                work.conclude(work.run())
                moved = [not torch.equal(*both) for both in zip(first[-1], work.features.parameters, strict=True)]
                same = all(map(torch.equal, teacher, work.teacher.parameters()))
                names = set(dict(work.student.named_parameters()))
            written = set(load_file(root / "out" / "model.safetensors"))
    assert moved == [True, True], f"weight and bias of the projection changed: {moved}; expected both"
    assert same, "the teacher was trained"
    assert written == names, f"the exported model has {sorted(written ^ names)} besides the student's parameters"
    assert all(map(torch.equal, *first)), f"two projections of seed {seed} differ: they depend on another generator"


STATES, MASK = torch.zeros(2, 3, 4), torch.ones(2, 3, dtype=torch.bool)
GIVEN: dict[str, Any] = {
    "student": [STATES, STATES],
    "teacher": [STATES, STATES, STATES],
    "scored_BT": MASK,
    "layers": [(0, 0), (1, -1)],
    "distance": "l2",
}

REFUSED: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    ("another width", {"teacher": [torch.zeros(2, 3, 8)] * 3}, ("[6, 4]", "[6, 8]", "torch.nn.Linear(4, 8)")),
    ("a teacher of another length", {"teacher": [torch.zeros(2, 2, 4)] * 3}, ("[2, 3, 4]", "[2, 2, 4]", "[B, T, W]")),
    ("a mask of another length", {"scored_BT": torch.ones(2, 2, dtype=torch.bool)}, ("mask [2, 2]",)),
    ("labels for a mask", {"scored_BT": torch.ones(2, 3, dtype=torch.int64)}, ("int64", "bool", "ignore_index")),
    ("states that are integers", {"student": [STATES.long()] * 2}, ("student", "int64", "[2, 3, 4]", "floating")),
    ("states without a batch", {"student": [STATES[0]] * 2}, ("student", "[3, 4]", "[B, T, width]")),
    ("a teacher on another device", {"teacher": [STATES.to("meta")] * 3}, ("cpu, meta, cpu", "one device")),
    ("a mask on another device", {"scored_BT": MASK.to("meta")}, ("cpu, cpu, meta", "one device")),
    (
        "a projection onto another width",
        {"projections": [nn.Identity(), nn.Linear(4, 3)]},
        ("[6, 3] after the projection", "[6, 4]", "Linear(4, 4)"),
    ),
    *((f"the distance {x!r}", {"distance": x}, (repr(x), "cosine", "l2")) for x in ("mse", None)),
    ("no pairs", {"layers": []}, ("no pairs",)),
    *(
        (
            f"the pair {pair}",
            {"layers": [(0, 0), pair]},
            (f"layer {index} of the {model}", str(pair), f"{count} layers"),
        )
        for pair, index, model, count in (((2, 0), 2, "student", 2), ((0, -4), -4, "teacher", 3))
    ),
    ("too few projections", {"projections": [nn.Identity()]}, ("1 projections", "2 pairs")),
]


def falsify_settings_that_do_not_fit_are_refused(subject: Any) -> None:
    for what, changes, words in REFUSED:
        assert_refused(what, lambda given=changes: _loss(subject, given), *words)
    for accepted in ({}, {"layers": [(-2, -3)]}, {"layers": [(1, 2)] * 4}, {"projections": [nn.Identity()] * 2}):
        loss = _loss(subject, accepted)
        assert float(loss.sum) == 0.0, f"sum is {loss.sum} for zero states; expected 0"


def _loss(subject: Any, changes: dict[str, Any]) -> Any:
    given = {**GIVEN, **changes}
    return subject.feature_loss(given.pop("student"), given.pop("teacher"), given.pop("scored_BT"), **given)


@given(case=feature_cases(), dtype=st.sampled_from([torch.float32, torch.bfloat16]))
def falsify_states_stay_on_their_device(subject: Any, case: FeatureCase, dtype: torch.dtype) -> None:
    case = case.to(dtype)
    alone = case.loss(subject)
    expected = [alone.sum.detach(), alone.count, *case.gradients(subject)]
    with fake_cuda():
        loss = case.loss(subject, "cuda")
        assert loss.sum.is_cuda and loss.count.is_cuda, f"sum and count are on {loss.sum.device}, {loss.count.device}"
        seen = [x.cpu() for x in (loss.sum.detach(), loss.count, *case.gradients(subject, "cuda"))]
    assert all(map(torch.equal, seen, expected)), f"on cuda:0 the results are {seen}; expected {expected}"
