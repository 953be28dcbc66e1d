"""Attacks on steps, runs and distillations that match hidden states, and on refused inputs.

A window is the micro-batches of one step. The subjects are `training.window`, `training.loop`, `pipeline.distill` and
`distillation.features`.
"""

import io
import math
from typing import Any

import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor, nn

from falsifiers.callbacks.real_run import after_steps
from falsifiers.feature_matching.cases import FeatureCase, feature_cases
from falsifiers.feature_training.windows import FeatureWindow, feature_windows
from falsifiers.support.assertions import assert_equal, refusal
from falsifiers.support.fake_cuda import fake_cuda
from falsifiers.support.oracles import assert_close, assert_refused
from falsifiers.support.runs import scratch, small
from falsifiers.support.steps import V, assert_gradients, gradients_of
from reference_trainer import Annealed, Lines, Schedule
from reference_trainer.distillation.features import FeatureMatching
from reference_trainer.distillation.providers import FixtureTeacher, ModuleStudent
from reference_trainer.errors import LogitsError


def _result(
    subject: Any, window: FeatureWindow, student: Any, teacher: Any, matching: FeatureMatching, device: str = "cpu"
) -> Any:
    """Return the result of the subject's `kd_window`; `student` may be a module."""
    student = ModuleStudent(student, V) if isinstance(student, nn.Module) else student
    return subject.kd_window(teacher, student, window.case.batches(device=device), window.weights, features=matching)


class ByKeywords(nn.Module):
    """A module that takes `output_hidden_states` by `**kwargs`, as models of transformers do; `ignores`: drops it."""

    def __init__(self, module: nn.Module, *, ignores: bool = False) -> None:
        super().__init__()
        self.module, self.ignores = module, ignores

    def forward(self, tokens: Tensor, **options: Any) -> Any:
        return self.module(tokens, **({} if self.ignores else options))


@given(window=feature_windows(), by_keywords=st.booleans())
def falsify_any_split_gives_the_gradient_with_features(
    subject: Any, device: str, window: FeatureWindow, by_keywords: bool
) -> None:
    layered, matching = window.student(device), window.matching(device)
    module = ByKeywords(layered) if by_keywords else layered
    sums = _result(subject, window, module, window.teacher(device), matching, device).sums
    assert "feature" in sums, f"the sums are {sorted(sums)}; expected also feature"
    feature, nats = window.feature_sum(), window.case.nats()["loss"]
    for name, value in {"feature": feature, "loss": nats + window.feature_weight * feature}.items():
        assert_equal(f"dtype of {name}", sums[name].dtype, torch.float64)
        # Rounding of the loss, and of a few hundred float64 terms of the distance.
        allowed = window.case.allowed_nats() + 1e-12 * (1 + abs(value))
        assert_close(name, float(sums[name]), value, allowed, "the sum over all micro-batches")
    expected, allowed_gradients = window.gradients()
    case = f"{[len(numbers) for numbers in window.case.split[0]]} sequences in the micro-batches, {window.distance}"
    gradients = gradients_of(module) | gradients_of(nn.ModuleList(matching.projections))
    assert_gradients(case, gradients, expected, allowed_gradients)


@given(window=feature_windows())
def falsify_weight_of_zero_computes_nothing(subject: Any, window: FeatureWindow) -> None:
    """Compare a window of feature_weight 0 with the same window of models that have no hidden states."""
    window = window.but(feature_weight=0.0)
    module, teacher, matching = window.student(), window.teacher(), window.matching()
    actual = _result(subject, window, module, teacher, matching).sums
    assert_equal("requests of hidden states, student and teacher", (module.asked, teacher.asked), (0, 0))
    assert_equal("gradients of the projections", {p.grad for p in matching.parameters} - {None}, set())
    plain = window.case.model()
    expected = _result(subject, window, plain, FixtureTeacher(window.case.teacher), matching).sums
    for name, gradient in gradients_of(plain).items():
        assert torch.equal(gradient, gradients_of(module)[name]), f"the gradient of {name} is not {gradient}"
    numbers = [{name: float(total) for name, total in sums.items()} for sums in (actual, expected)]
    assert_equal("sums with feature_weight 0", *numbers)
    assert "feature" not in actual, f"the sums are {sorted(actual)}; expected no feature"


@given(window=feature_windows(), state=st.sampled_from([1e200, math.inf, math.nan]))
def falsify_a_distance_that_is_not_finite_is_refused(subject: Any, window: FeatureWindow, state: float) -> None:
    """Set every hidden state of the teacher to `state`; the square of 1e200 overflows."""
    assume(window.case.count())
    states = [torch.full_like(states, state) for states in window.states]
    window = window.but(states=states, distance="l2")
    parts = window.student(), window.teacher(), window.matching()
    message = refusal(lambda: _result(subject, window, *parts), LogitsError)
    assert message, f"hidden states of {state} are accepted; expected a LogitsError"


class WithoutStates:
    """A student without the method that returns hidden states."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.vocab_size, self.forward = inner, inner.vocab_size, inner.forward


@given(window=feature_windows(), without=st.sampled_from(["teacher", "student", "module", "keyword"]))
def falsify_models_without_hidden_states_are_refused(subject: Any, window: FeatureWindow, without: str) -> None:
    module = window.case.model() if without == "module" else window.student()
    teacher: Any = FixtureTeacher(window.case.teacher) if without == "teacher" else window.teacher()
    students = {"student": WithoutStates(ModuleStudent(module, V)), "keyword": ByKeywords(module, ignores=True)}
    # A module that ignores the keyword is found after its forward pass; the other three have no such interface.
    words = ["teacher" if without == "teacher" else "student", "hidden states"]
    assert_refused(
        f"a {without} without hidden states",
        lambda: _result(subject, window, students.get(without, module), teacher, window.matching()),
        *(words if without == "keyword" else [*words, "feature_weight"]),
    )
    assert all(g is None for g in gradients_of(module).values()), f"a refused step has {gradients_of(module)}"


def _metrics(
    subject: Any, window: FeatureWindow, weight: float | Annealed, every: int, device: str = "cpu"
) -> list[dict[str, float]]:
    """Return the metrics of each logged step of a run with one micro-batch a step."""
    callbacks, metrics_by_step = after_steps(lambda context: dict(context.metrics))
    batches = window.case.batches(device=device)
    subject.train(
        window.teacher(device),
        ModuleStudent(window.student(device), V),
        lambda epoch, k: batches[k - 1],
        None,
        schedule=Schedule(epochs=1, steps_per_epoch=len(batches), log_every=every),
        objective=subject.Objective(**window.case.settings, feature_weight=weight),
        learning_rate=lambda step: 0.0,
        callbacks=callbacks,
        features=window.matching(device),
    )
    return [metrics for metrics in metrics_by_step if metrics]


@given(window=feature_windows())
def falsify_the_metric_is_a_mean_over_tokens(subject: Any, device: str, window: FeatureWindow) -> None:
    assume(window.case.count())
    steps = len(window.case.split[0])
    (metrics,) = _metrics(subject, window, window.feature_weight, steps, device)
    expected = window.feature_sum() / window.case.count()
    assert "feature" in metrics, f"the metrics of {steps} steps are {sorted(metrics)}; expected also feature"
    assert math.isclose(metrics["feature"], expected, rel_tol=1e-12, abs_tol=1e-14), (
        f"the feature of {steps} steps is {metrics['feature']!r}; expected {expected!r}, a mean over scored tokens"
    )
    assert_equal("feature_weight", metrics["feature_weight"], window.feature_weight)


@given(window=feature_windows(), end=st.floats(0.25, 4))
def falsify_the_weight_follows_its_schedule(subject: Any, window: FeatureWindow, end: float) -> None:
    first, steps = window.feature_weight, len(window.case.split[0])
    for start, stop in ((first, end), (0.0, end), (0.0, 0.0)):
        weight = Annealed(start, stop, "linear", name="feature_weight")
        logged = _metrics(subject, window, weight, 1)
        assert_equal("logged steps", len(logged), steps)
        for step, metrics in enumerate(logged, start=1):
            now = start + (stop - start) * (step - 1) / max(steps - 1, 1)
            case = f"step {step} of {steps}, feature_weight from {start} to {stop}, now {now}: {metrics}"
            # A step without a scored token has neither a loss nor a feature.
            names = {"feature_weight", *(["feature"] if "loss" in metrics else [])} if now > 0 else set()
            assert_equal(f"{case}: metrics of features", {"feature_weight", "feature"} & metrics.keys(), names)
            if "feature" in metrics:
                both = window.case.ce_weight * metrics["hard_loss"] + window.case.kd_weight * metrics["soft_loss"]
                for name, value in (("feature_weight", now), ("loss", both + now * metrics["feature"])):
                    is_close = math.isclose(metrics[name], value, rel_tol=1e-12, abs_tol=1e-12)
                    assert is_close, f"{case}; expected {name} {value}"


def _copy(parameters: Any) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in parameters]


RISING = {"feature_weight": 0.0, "feature_weight_end": 2.0, "anneal": "linear"}


@given(
    seed=st.integers(0, 9),
    distance=st.sampled_from(["cosine", "l2"]),
    dtype=st.sampled_from(["float32", "float64"]),
    weight=st.sampled_from([RISING, {"feature_weight": 1.0}]),
)
def falsify_a_projection_is_made_trained_and_not_exported(
    subject: Any, seed: int, distance: str, dtype: str, weight: dict[str, Any]
) -> None:
    """Distill twice with one seed and other states of the global generator, and prepare a run with another seed."""
    initial_projections, clip = [], 1e-3
    with scratch() as root:
        for process_seed, run_seed in ((1, seed), (2, seed), (2, seed + 1)):
            torch.manual_seed(process_seed)
            settings = {"seed": run_seed, "feature_distance": distance, "dtype": dtype, **weight, "teacher_width": 32}
            settings |= {"lr": 0.01, "warmup": 0, "clip": clip, "out": root / "out", "force": True}
            with subject.Distillation(small(root, **settings), lines=Lines(io.StringIO())) as work:
                work.prepare()
                projection, teacher = work.features.parameters, _copy(work.teacher.parameters())
                shapes = [(tuple(parameter.shape), parameter.dtype) for parameter in projection]
                kind = getattr(torch, dtype)
                assert_equal("weight and bias of the projection", shapes, [((32, 16), kind), ((32,), kind)])
                groups = work.make_optimizer(projection).param_groups
                decay = {parameter: group["weight_decay"] > 0 for group in groups for parameter in group["params"]}
                assert_equal("whether weight and bias decay", [decay[p] for p in projection], [True, False])
                initial_projections.append(_copy(projection))
                if run_seed != seed:
                    break
                work.conclude(work.run())
                gradients = [p.grad for group in work.optimizer.param_groups for p in group["params"]]
                norm = float(nn.utils.get_total_norm(gradients))
                assert math.isclose(norm, clip, rel_tol=1e-3), (
                    f"the clipped norm with projections is {norm}; not {clip}"
                )
                changed = [not torch.equal(*both) for both in zip(initial_projections[-1], projection, strict=True)]
                assert_equal("whether weight and bias of the projection changed", changed, [True, True])
                assert all(map(torch.equal, teacher, work.teacher.parameters())), "the teacher's weights changed"
                names = set(dict(work.student.named_parameters()))
            assert_equal("exported tensors", set(load_file(root / "out" / "model.safetensors")), names)
    first, second, other = initial_projections
    assert all(map(torch.equal, first, second)), f"seed {seed} gives two projections: {first}, {second}"
    assert not any(map(torch.equal, first, other)), f"seeds {seed} and {seed + 1} give one projection: {first}"


@given(
    widths=st.tuples(*[st.lists(st.integers(1, 3), min_size=2, max_size=3)] * 2),
    layers=st.lists(st.tuples(st.integers(-2, 1), st.integers(-2, 1)), min_size=1, max_size=3),
    dtypes=st.tuples(*[st.sampled_from([torch.float32, torch.float64, torch.bfloat16])] * 2),
)
def falsify_projections_fit_their_pairs(
    subject: Any, widths: tuple[list[int], list[int]], layers: list[tuple[int, int]], dtypes: tuple[torch.dtype, ...]
) -> None:
    """Create projections for hidden states of these widths and dtypes, of the student and of the teacher.

    widths: the width of each layer of the student, and of the teacher. layers: pairs of layers (student, teacher).
    """
    student, teacher = (
        [torch.ones(1, 2, width, dtype=dtype) for width in of_model]
        for of_model, dtype in zip(widths, dtypes, strict=True)
    )
    dtype, before = torch.float64 if torch.float64 in dtypes else torch.float32, torch.random.get_rng_state()
    matching = subject.new_matching(student, teacher, layers=layers, distance="l2", seed=3)
    assert torch.equal(before, torch.random.get_rng_state()), "the global generator of torch has changed"
    pairs = [(widths[0][i], widths[1][j]) for i, j in layers]
    expected = [None if S == W else (W, S, dtype) for S, W in pairs]
    actual = [(*p.weight.shape, p.weight.dtype) if isinstance(p, nn.Linear) else None for p in matching.projections]
    assert_equal(f"projections of pairs of widths {pairs}", actual, expected if any(expected) else [])
    mask = torch.ones(1, 2, dtype=torch.bool)
    distance, _ = matching.differentiate(student, teacher, mask, 1.0)
    assert bool(distance.isfinite()), f"the distance of pairs of the widths {pairs} is {distance}"


STATES, MASK = torch.zeros(2, 3, 4), torch.ones(2, 3, dtype=torch.bool)
VALID_ARGUMENTS: dict[str, Any] = {
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
    def loss(changes: dict[str, Any]) -> Any:
        arguments = {**VALID_ARGUMENTS, **changes}
        tensors = [arguments.pop(name) for name in ("student", "teacher", "scored_BT")]
        return subject.feature_loss(*tensors, **arguments)

    for case, changes, words in REFUSED:
        assert_refused(case, lambda changes=changes: loss(changes), *words)
    for changes in ({}, {"layers": [(-2, -3)]}, {"layers": [(1, 2)] * 4}, {"projections": [nn.Identity()] * 2}):
        assert_equal(f"sum of zero states with {changes}", float(loss(changes).sum), 0.0)


@given(case=feature_cases(), dtype=st.sampled_from([torch.float32, torch.bfloat16]))
def falsify_states_stay_on_their_device(subject: Any, case: FeatureCase, dtype: torch.dtype) -> None:
    """Compute on fake CUDA tensors, which refuse operations that mix devices, and compare with the CPU."""
    case = case.to(dtype)
    on_cpu = case.loss(subject)
    expected = [on_cpu.sum.detach(), on_cpu.count, *case.gradients(subject)]
    with fake_cuda():
        loss = case.loss(subject, "cuda")
        assert_equal("devices of sum and count", (loss.sum.device.type, loss.count.device.type), ("cuda", "cuda"))
        actual = [x.cpu() for x in (loss.sum.detach(), loss.count, *case.gradients(subject, "cuda"))]
    assert all(map(torch.equal, actual, expected)), f"on cuda:0 the results are {actual}; expected {expected}"
