"""Attacks on the step that matches hidden states. The subject is `reference_trainer.training.window`."""

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from falsifiers.feature_training.windows import FeatureWindow, feature_windows
from falsifiers.support import oracles
from falsifiers.support.windows import TinyModel, V, assert_gradients, gradients_of
from reference_trainer.distillation.matching import FeatureMatching
from reference_trainer.distillation.providers import FixtureTeacher, ModuleStudent


def _window(
    subject: Any, window: FeatureWindow, module: Any, teacher: Any, matching: FeatureMatching, device: str = "cpu"
) -> Any:
    models = teacher, ModuleStudent(module, V)
    return subject.kd_window(*models, window.case.batches(device=device), window.weights, features=matching)


def _gradients(module: Any, matching: FeatureMatching) -> dict[str, Any]:
    projections = torch.nn.ModuleList(matching.projections)
    return {**gradients_of(module), **gradients_of(projections)}


class ByKeywords(nn.Module):
    """A module that takes `output_hidden_states` by `**kwargs`, as models of transformers do, or ignores it."""

    def __init__(self, module: nn.Module, *, ignores: bool = False) -> None:
        super().__init__()
        self.module, self.ignores = module, ignores

    def forward(self, tokens: Tensor, **options: Any) -> Any:
        return self.module(tokens, **({} if self.ignores else options))


@given(window=feature_windows(), by_keywords=st.booleans())
def falsify_any_split_gives_the_gradient_with_features(
    subject: Any, device: str, window: FeatureWindow, by_keywords: bool
) -> None:
    module, matching = window.student(device), window.matching(device)
    module = ByKeywords(module) if by_keywords else module
    sums = _window(subject, window, module, window.teacher(device), matching, device).sums
    _assert_sums(window, sums)
    expected, allowed = window.gradients()
    what = f"{[len(each) for each in window.case.split[0]]} sequences in the micro-batches, {window.distance}"
    assert_gradients(what, _gradients(module, matching), expected, allowed)


def _assert_sums(window: FeatureWindow, sums: dict[str, Tensor]) -> None:
    assert "feature" in sums, f"sums are {sorted(sums)}; expected feature too"
    feature, nats = window.feature_sum(), window.case.nats()["loss"]
    for name, value in {"feature": feature, "loss": nats + window.feature_weight * feature}.items():
        assert sums[name].dtype is torch.float64, f"{name} is {sums[name].dtype}; expected float64"
        allowed = window.case.allowed_nats() + 1e-12 * (1 + abs(value))
        oracles.assert_close(name, float(sums[name]), value, allowed, "the sum over all micro-batches")


@given(window=feature_windows())
def falsify_weight_of_zero_computes_nothing(subject: Any, window: FeatureWindow) -> None:
    window = window.but(feature_weight=0.0)
    module, teacher, matching = window.student(), window.teacher(), window.matching()
    seen = _window(subject, window, module, teacher, matching)
    assert (module.asked, teacher.asked) == (0, 0), f"asked for states: {module.asked}, {teacher.asked}"
    assert "feature" not in seen.sums, f"sums are {sorted(seen.sums)}; expected no feature"
    assert all(each.grad is None for each in matching.parameters), "a projection has a gradient"
    plain = window.case.model()
    expected = _window(subject, window, plain, FixtureTeacher(window.case.teacher), matching)
    for name, gradient in gradients_of(plain).items():
        assert torch.equal(gradient, gradients_of(module)[name]), f"the gradient of {name} differs"
    assert {name: float(each) for name, each in seen.sums.items()} == {
        name: float(each) for name, each in expected.sums.items()
    }, "the sums differ"


class WithoutStates:
    """A student that has logits only."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.vocab_size, self.forward = inner, inner.vocab_size, inner.forward


@given(window=feature_windows(), lacks=st.sampled_from(["teacher", "student", "module", "keyword"]))
def falsify_models_without_hidden_states_are_refused(subject: Any, window: FeatureWindow, lacks: str) -> None:
    module: Any = window.case.model() if lacks == "module" else window.student()
    teacher: Any = FixtureTeacher(window.case.teacher) if lacks == "teacher" else window.teacher()
    student: Any = ModuleStudent(module, V)
    student = WithoutStates(student) if lacks == "student" else student
    student = ModuleStudent(ByKeywords(module, ignores=True), V) if lacks == "keyword" else student

    def step() -> None:
        subject.kd_window(teacher, student, window.case.batches(), window.weights, features=window.matching())

    named = "teacher" if lacks == "teacher" else "student"
    words = [named, "hidden states", *(["feature_weight"] if lacks != "keyword" else [])]
    oracles.assert_refused(f"a {lacks} without hidden states", step, *words)
    assert isinstance(module, TinyModel) and all(each is None for each in gradients_of(module).values()), (
        "the student has a gradient after the refusal"
    )
