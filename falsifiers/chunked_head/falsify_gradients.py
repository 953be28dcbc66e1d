"""Attacks on gradients and sums that are formed a chunk of rows at a time."""

import itertools
from collections.abc import Callable
from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from falsifiers.chunked_head.models import (
    WEIGHTS,
    Logits,
    Tiny,
    V,
    assert_gradients,
    batches_of,
    chunks_of,
    oracle,
    repeated,
)
from falsifiers.support.divergence_oracles import DIVERGENCES
from falsifiers.support.fake_cuda import fake_cuda, moved
from falsifiers.support.ranks import run_ranks
from reference_trainer.data.text import Sequences
from reference_trainer.distillation.objective import Weights
from reference_trainer.distillation.protocols import Batch
from reference_trainer.distillation.top_k import TopK, keep_top_k

ALLOWED = {"float64": 1e-12, "float32": 1e-5, "bfloat16": 0.03}
"""Of the norm of a gradient; products under autocast round to 8 bits."""
MODELS = st.fixed_dictionaries({"tied": st.booleans(), "bias": st.booleans(), "checkpointed": st.booleans()})
BOTH = Weights(temperature=1.0, ce_weight=0.3, kd_weight=1.0)
MANY: dict[str, Any] = {"dtype": "bfloat16", "rows": 1, "offered": True, "times": 400}
"""So many chunks that a sum in bfloat16 loses the later ones."""


@given(
    seed=st.integers(0, 99),
    options=MODELS,
    weights=WEIGHTS,
    dtype=st.sampled_from(sorted(ALLOWED)),
    rows=st.integers(1, 9),
    offered=st.booleans(),
    times=st.just(1),
)
@example(seed=0, options={"tied": True}, weights=BOTH, dtype="float64", rows=2, offered=True, times=1)
@example(seed=0, options={}, weights=BOTH, **MANY)
def falsify_chunks_give_gradient_and_sums_of_all_logits(
    subject: Any,
    seed: int,
    options: dict[str, bool],
    weights: Weights,
    dtype: str,
    rows: int,
    offered: bool,
    times: int,
) -> None:
    student, teacher = Tiny(seed, **options), Tiny(seed + 1)
    batches = [repeated(each, times) for each in batches_of(seed, [(3, 5), (1, 2), (2, 7)])]
    expected = oracle(student, teacher, batches, weights)
    kind = torch.float64 if dtype == "float64" else torch.float32
    student, given_teacher = student.to(kind), (teacher if offered else Logits(teacher)).to(kind)
    models = [subject.computing_in(dtype, each) for each in (given_teacher, student)]
    with chunks_of(rows):
        providers = subject.ModuleTeacher(models[0], V), subject.ModuleStudent(models[1], V)
        window = subject.kd_window(*providers, batches, weights, metrics=True)
    assert_gradients(f"{dtype}, chunks of {rows} rows, sequences {times} times", student, expected, ALLOWED[dtype])
    for name in window.sums.keys() & expected.sums.keys() if dtype != "bfloat16" else ():
        wanted = expected.sums[name]
        seen = float(window.sums[name])
        allowed = ALLOWED[dtype] * max(abs(wanted), 1.0)
        assert abs(seen - wanted) <= allowed, f"{dtype}, chunks of {rows} rows: {name} is {seen}; expected {wanted}"


def _text(seed: int) -> Sequences:
    bytes_N = torch.randint(V, (17,), generator=torch.Generator().manual_seed(seed)).byte()
    return Sequences(bytes_N=bytes_N, length=5, batch_size=3, device=torch.device("cpu"))


@given(seed=st.integers(0, 99), weights=WEIGHTS, rows=st.integers(1, 9))
def falsify_an_evaluation_has_the_sums_of_all_logits(subject: Any, seed: int, weights: Weights, rows: int) -> None:
    student, teacher = Tiny(seed).double(), Tiny(seed + 1).double()
    text = _text(seed)
    batches = [text.batch(torch.arange(len(text)), number) for number in range(1, text.batches + 1)]
    expected = oracle(student, teacher, batches, weights).sums
    with chunks_of(rows):
        providers = subject.ModuleTeacher(teacher, V), subject.ModuleStudent(student, V)
        sums = subject.evaluate(*providers, text, weights)
    for name in expected.keys() - {"loss"}:
        seen, wanted = sums[name].sum, expected[name]
        assert abs(seen - wanted) <= 1e-10, f"chunks of {rows} rows: {name} is {seen}; expected {wanted}"
    trained = [name for name, each in student.named_parameters() if each.grad is not None]
    assert trained == [], f"an evaluation leaves gradients of {trained}"


SHARED = [
    *itertools.product([("truncate", V, V + 3), ("truncate-student", V + 3, V)], DIVERGENCES),
    *itertools.product([("pad", V + 3, V)], ["forward_kl", "jensen_shannon"]),  # the teacher gives 0 to some tokens
    *itertools.product([("pad", V, V + 3)], ["reverse_kl", "jensen_shannon"]),  # the student does
]
"""The mode and the sizes of student and teacher, with a divergence that is finite for them."""


@given(seed=st.integers(0, 99), shared=st.sampled_from(SHARED), bias=st.booleans())
def falsify_cut_and_padded_vocabularies(
    subject: Any, seed: int, shared: tuple[tuple[str, int, int], str], bias: bool
) -> None:
    (mode, *sizes), divergence = shared
    student, teacher = (Tiny(seed + k, size, bias=bias).double() for k, size in enumerate(sizes))
    batches = batches_of(seed, [(3, 5), (2, 4)])
    weights = Weights(temperature=2.0, ce_weight=0.3, kd_weight=0.7, divergence=divergence)
    expected = oracle(student, teacher, batches, weights, vocabulary=V + 3 if mode == "pad" else V)
    with chunks_of(4):
        learner, frozen = subject.ModuleStudent(student, sizes[0]), subject.ModuleTeacher(teacher, sizes[1])
        taught, learned = subject.share_vocabulary(frozen, learner, mode)
        subject.kd_window(taught, learned, batches, weights)
    assert_gradients(mode, student, expected, 1e-12)


def _assert_same_in_chunks(what: str, results: Callable[[], list[Tensor]]) -> None:
    """Assert that results are the same whether chunks of four rows or all logits are formed."""
    all_logits = results()
    with chunks_of(4):
        chunked = results()
    for expected, seen in zip(all_logits, chunked, strict=True):
        away = float((expected - seen).abs().max())
        assert away <= 1e-12 * max(float(expected.abs().max()), 1.0), f"{what}: a result is off by {away:.1e}"


@given(seed=st.integers(0, 99), tied=st.booleans())
def falsify_hidden_states_are_matched_beside_chunks(subject: Any, seed: int, tied: bool) -> None:
    """The features of a window are those of a window with all logits, which `feature-training` holds to an oracle."""
    weights = Weights(temperature=2.0, ce_weight=0.3, kd_weight=0.7, feature_weight=0.5)
    batches = batches_of(seed, [(3, 5), (2, 4)])

    def results() -> list[Tensor]:
        student, teacher = Tiny(seed, tied=tied).double(), Tiny(seed + 1).double()
        providers = subject.ModuleTeacher(teacher, V), subject.ModuleStudent(student, V)
        window = subject.kd_window(*providers, batches, weights)
        gradients = [each.grad for each in student.parameters() if each.grad is not None]
        return [window.sums["feature"], window.sums["loss"], *gradients]

    _assert_same_in_chunks("with features", results)


class _MostProbable:
    """A teacher of which the most probable tokens are known."""

    vocab_size = V

    def __init__(self, model: nn.Module, k: int, temperature: float) -> None:
        self.model, self.k, self.temperature = model, k, temperature

    def top_k(self, batch: Batch) -> TopK:
        return keep_top_k(self.model(batch.tokens).detach(), self.k, self.temperature)


@given(
    seed=st.integers(0, 99),
    kept=st.sampled_from([0, 1, 4, V]),
    divergence=st.sampled_from(sorted(DIVERGENCES)),
)
def falsify_partly_known_teachers_are_compared_in_chunks(subject: Any, seed: int, kept: int, divergence: str) -> None:
    """Windows and evaluations are those of all logits, which `teacher-outputs` holds to an oracle; 0: no teacher."""
    kd_weight = 0.7 if kept else 0.0
    weights = Weights(temperature=2.0, ce_weight=0.3, kd_weight=kd_weight, divergence=divergence)
    batches = batches_of(seed, [(3, 5), (2, 4)])

    def results() -> list[Tensor]:
        student, teacher = Tiny(seed).double(), _MostProbable(Tiny(seed + 1).double(), kept, 2.0)
        learner = subject.ModuleStudent(student, V)
        window = subject.kd_window(teacher, learner, batches, weights, metrics=True, taught=kept > 0)
        sums = subject.evaluate(teacher, learner, _text(seed), weights) if kept else {}
        numbers = [*window.sums.values(), *(torch.tensor(each.sum) for each in sums.values())]
        return [*numbers, *(each.grad for each in student.parameters() if each.grad is not None)]

    _assert_same_in_chunks(f"{kept} known", results)


PLACES = st.sampled_from(["cpu", "cuda"])


@given(seed=st.integers(0, 99), teacher_on=PLACES, batch_on=PLACES, scored=st.sampled_from([0.0, 0.6, 1.0]))
def falsify_chunks_stay_on_their_device(subject: Any, seed: int, teacher_on: str, batch_on: str, scored: float) -> None:
    """There every row is read, because a selection would wait for the device; unscored ones have no influence."""
    student, teacher = Tiny(seed, bias=True).double(), Tiny(seed + 1).double()
    weights = Weights(temperature=2.0, ce_weight=0.3, kd_weight=0.7)
    batches, lines = batches_of(seed, [(3, 5), (2, 4)], scored), list[str]()
    expected = oracle(student, teacher, batches, weights)
    with fake_cuda(), chunks_of(4):
        frozen = subject.ModuleTeacher(moved(teacher, teacher_on), V)
        learner = subject.ModuleStudent(moved(student, "cuda"), V, note=lines.append)
        placed = [Batch(tokens=each.tokens.to(batch_on), labels=each.labels.to(batch_on)) for each in batches]
        subject.kd_window(frozen, learner, placed, weights)
        places = {str(each.grad.device) for each in student.parameters() if each.grad is not None}
        assert places == {"cuda:0"}, f"gradients are on {places}; expected cuda:0"
        assert lines == [], f"there are no chunks: {lines}"
        seen = {name: each.grad.cpu() for name, each in student.named_parameters() if each.grad is not None}
    for name, wanted in expected.gradients.items():
        away = float((seen[name] - wanted).abs().max())
        assert away <= 1e-12, f"the gradient of {name} is off by {away:.1e}"


@given(seed=st.integers(0, 99))
def falsify_ranks_have_the_gradient_of_all_logits(subject: Any, seed: int) -> None:
    weights = Weights(temperature=2.0, ce_weight=0.3, kd_weight=0.7)
    batches = batches_of(seed, [(3, 5), (1, 2), (2, 7), (0, 3)])  # the last has no sequence

    def work(rank: int) -> None:
        for strategy, tied in itertools.product(("ddp", "fsdp2"), (False, True)):
            expected = oracle(Tiny(seed, tied=tied), Tiny(seed + 1), batches, weights)
            student = Tiny(seed, tied=tied).double()
            parallel, module = _spread(subject, student, strategy)
            providers = subject.ModuleTeacher(Tiny(seed + 1).double(), V), subject.ModuleStudent(module, V)
            with chunks_of(3):
                subject.kd_window(*providers, batches[rank::2], weights, parallel=parallel)
            assert_gradients(f"rank {rank}, {strategy}, tied: {tied}", student, expected, 1e-12)

    run_ranks(2, work)


def _spread(subject: Any, student: nn.Module, strategy: str) -> tuple[Any, nn.Module]:
    if strategy == "ddp":
        module = DistributedDataParallel(student)
        return subject.DataParallel(module), module
    sharded = subject.shard(student, torch.device("cpu"))
    return subject.ShardedParallel(sharded), sharded
