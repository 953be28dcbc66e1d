"""Attacks on the loss between vocabularies of different sizes. The subject is `distillation.vocabulary`."""

import math
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.support import oracles
from falsifiers.support.cases import assert_same_gradient
from falsifiers.support.steps import SHIFTED, AnsweringTeacher, RecordingStudent, assert_result_is_the_oracles
from falsifiers.teachers.cases import Pair, pairs, table_of
from reference_trainer.errors import SettingError, VocabularyError

TRUNCATE = {"teacher": "truncate", "student": "truncate-student"}


def assert_step_of_the_shared_tokens(subject: Any, pair: Pair, mode: str, device: str, vocab_size: int) -> None:
    """Assert that result and gradient are the oracle's for tables of this size; other columns have no gradient."""
    result, gradient = pair.step(subject, mode, device)
    case = pair.resized(vocab_size)
    assert_result_is_the_oracles(result, case)
    own = pair.student.shape[1]
    expected = torch.zeros(*pair.tokens.shape, own, dtype=torch.float64)
    kept = min(own, vocab_size)
    expected[..., :kept] = case.oracle_gradient()[..., :kept]
    allowed = case.shifted().allowed_gradient()
    assert_same_gradient(f"{mode}, sizes {pair.sizes}: the gradient", gradient, expected, allowed, SHIFTED)
    assert not bool(gradient[..., kept:].any()), f"{mode}, sizes {pair.sizes}: a gradient beyond column {kept}"


@given(data=st.data(), larger=st.sampled_from(sorted(TRUNCATE)))
def falsify_truncated_vocabulary(subject: Any, device: str, data: st.DataObject, larger: str) -> None:
    pair = data.draw(pairs(larger))
    assert_step_of_the_shared_tokens(subject, pair, TRUNCATE[larger], device, min(pair.sizes))


@given(teacher_padded=pairs("student"), pair=pairs("teacher"), label=st.none() | st.integers(0, 3))
def falsify_padded_vocabulary(subject: Any, device: str, teacher_padded: Pair, pair: Pair, label: int | None) -> None:
    assert_step_of_the_shared_tokens(subject, teacher_padded, "pad", device, max(teacher_padded.sizes))
    own = pair.student.shape[1]
    banned = pair.but(teacher=table_of(pair.teacher[:, :own], pair.teacher.shape[1]))
    assert_step_of_the_shared_tokens(subject, banned, "pad", device, own)
    result, gradient = pair.step(subject, "pad", device)
    of = f"pad, sizes {pair.sizes}"
    assert result.sum == math.inf, f"{of}: the mass of tokens that the student lacks costs {result.sum}, not +inf"
    assert bool(gradient.isfinite().all()), f"{of}: the gradient is {gradient.tolist()}"
    if label is not None:
        labels = pair.labels.clone()
        labels[0, 1] = min(own + label, pair.teacher.shape[1] - 1)
        result, gradient = banned.but(labels=labels).step(subject, "pad", device)
        assert result.sum == math.inf, f"{of}: a label that the student lacks costs {result.sum}"
        assert bool(gradient.isfinite().all()), f"{of}: the gradient is {gradient.tolist()}"


TOKENS = torch.tensor([[0, 1, 1], [1, 0, 1]])


@given(small=st.integers(1, 9), more=st.integers(1, 9))
def falsify_truncation_of_the_smaller_vocabulary_is_refused(subject: Any, small: int, more: int) -> None:
    large = small + more
    cut = f"teacher vocab_size {small}, student vocab_size {large};", f"teacher vocab_size {large}, student"
    for mode, sizes, kind, words in (
        ("truncate", (small, large), VocabularyError, (cut[0], "'pad'")),
        ("truncate-student", (large, small), VocabularyError, (cut[1], "'pad'")),
        ("cut", (small, large), SettingError, ("truncate, truncate-student, pad",)),
        ("cut", (small, small), SettingError, ("truncate, truncate-student, pad",)),
    ):
        student = RecordingStudent(torch.zeros(2, sizes[1], dtype=torch.float64))
        call = partial(subject.share_vocabulary, AnsweringTeacher(sizes[0], None), student, mode)
        what = f"{mode} with a teacher of {sizes[0]} and a student of {sizes[1]} tokens"
        oracles.assert_refused(what, call, f"'{mode}'", *words, kind=kind)
        assert not student.passes, f"{mode} ran {len(student.passes)} forwards before the refusal"


def _featured(vocab_size: int, got: list[Any]) -> Any:
    """Return a model with hidden states, whose pass adds the gradients that it gets to `got`."""
    states = [torch.ones(1, 2, 3), torch.zeros(1, 2, 3)]
    made = SimpleNamespace(logits=torch.zeros(1, 2, vocab_size), hidden_states=states)
    made.backward = lambda *gradients: got.extend(gradients)
    calls = {"forward": lambda batch: made, "forward_features": lambda batch: made, "outputs": lambda batch: made}
    return SimpleNamespace(vocab_size=vocab_size, logits=lambda batch: made.logits, made=made, **calls)


@given(taught=st.integers(2, 5), learned=st.integers(2, 5), mode=st.sampled_from(["pad", "truncate-student"]))
def falsify_gradients_of_hidden_states_are_passed_on(subject: Any, taught: int, learned: int, mode: str) -> None:
    if mode == "truncate-student" and learned <= taught:
        learned = taught + 1
    got = list[Any]()
    own = _featured(learned, got)
    _, student = subject.share_vocabulary(_featured(taught, []), own, mode)
    batch = SimpleNamespace(tokens=torch.zeros(1, 2, dtype=torch.int64))
    made, hidden = student.forward_features(batch), [torch.full((1, 2, 3), 0.5), None]
    assert made.hidden_states is own.made.hidden_states, "the hidden states are not those of the student"
    made.backward(torch.ones_like(made.logits), hidden)
    assert got[0].shape == own.made.logits.shape, f"the logits get a gradient {list(got[0].shape)}"
    assert got[1:] == [hidden], f"the hidden states get {got[1:]}; expected their gradients"


WRAPPED = [
    ("truncate", "teacher", 5, 3),
    ("pad", "teacher", 3, 5),
    ("truncate-student", "student", 5, 3),
    ("pad", "student", 3, 5),
]
"""Modes, the model that is wrapped, its vocabulary and that of the other one."""
CALLS = {"teacher": ["logits", "outputs"], "student": ["forward", "forward_features", "logits", "outputs"]}


def falsify_logits_of_another_width_are_refused(subject: Any) -> None:
    batch = SimpleNamespace(tokens=torch.zeros(1, 2, dtype=torch.int64))
    for mode, kind, size, other in WRAPPED:
        for width in (size - 1, size + 1, other):
            model = _featured(width, [])
            model.vocab_size = size
            models = {"teacher": _featured(other, []), "student": _featured(other, []), kind: model}
            wrapped = dict(zip(models, subject.share_vocabulary(*models.values(), mode), strict=True))[kind]
            for name in CALLS[kind]:
                what = f"{mode}: {name} of a {kind} of {size} tokens that returns {width} logits"
                words = (f"vocabulary of {width}", f"vocab_size {size}")
                oracles.assert_refused(what, partial(getattr(wrapped, name), batch), *words)
