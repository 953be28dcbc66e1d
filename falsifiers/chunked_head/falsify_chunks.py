"""Attacks on loss and gradient in chunks of rows of logits, and on models whose logits cannot be formed in chunks.

Such a model forms the logits of all tokens at once, and a line (notice) says so. The oracle forms all logits.
"""

import itertools
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import partial
from types import MethodType, SimpleNamespace
from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode

from falsifiers.chunked_head import models
from falsifiers.chunked_head.models import WEIGHTS, Tiny, V, assert_gradients, batches_of, chunks_of, oracle, window
from falsifiers.ranks.falsify_ranks import Collectives
from falsifiers.support.assertions import assert_equal
from falsifiers.support.fake_cuda import fake_cuda, moved
from falsifiers.support.oracles import DIVERGENCES, assert_refused
from falsifiers.support.ranks import run_ranks
from reference_trainer import Batch, Sequences, Weights
from reference_trainer.distillation.protocols import TopK, keep_top_k
from reference_trainer.errors import LabelError
from reference_trainer.models.decoder import DecoderConfig, new_decoder

# Gradients are float64 sums over at most 30 rows of 11 logits; each term has a few rounding errors of 1e-16.
SEEDS, EXACT = st.integers(0, 99), 1e-12
ALLOWED = {"float64": EXACT, "float32": 1e-5, "bfloat16": 0.03}
"""Largest error relative to the norm of a gradient; bfloat16 products of autocast have 8 significant bits."""
MODELS = st.fixed_dictionaries(
    {"tied": st.booleans(), "bias": st.booleans(), "checkpointed": st.booleans()},
    optional={"frozen": st.sampled_from(["body", "head", "weight"])},
).filter(lambda options: not (options["tied"] and options.get("frozen") == "body"))  # it would have nothing to train
BOTH = Weights(temperature=1.0, ce_weight=0.3, kd_weight=1.0)
USUAL = Weights(temperature=2.0, ce_weight=0.3, kd_weight=0.7)
FEW: dict[str, Any] = {"dtype": "float64", "rows": 2, "offered": True, "times": 1}
MANY: dict[str, Any] = {"dtype": "bfloat16", "rows": 1, "offered": True, "times": 400}
"""Arguments with so many chunks that a sum in bfloat16 would lose the later ones."""


def _pair(seed: int, **options: Any) -> tuple[Tiny, Tiny]:
    """Return a student with these options and a teacher, in float64."""
    return Tiny(seed, **options).double(), Tiny(seed + 1).double()


@given(
    seed=SEEDS,
    options=MODELS,
    weights=WEIGHTS,
    dtype=st.sampled_from(sorted(ALLOWED)),
    rows=st.integers(1, 9),
    offered=st.booleans(),
    times=st.just(1),
)
@example(seed=0, options={"tied": True}, weights=BOTH, **FEW)
@example(seed=0, options={"bias": True}, weights=BOTH, **MANY)
@example(seed=0, options={"frozen": "weight", "bias": True}, weights=BOTH, **FEW)
@example(seed=0, options={"frozen": "body"}, weights=BOTH, **FEW)
def falsify_chunks_give_gradient_and_sums_of_all_logits(
    subject: Any,
    seed: int,
    options: dict[str, Any],
    weights: Weights,
    dtype: str,
    rows: int,
    offered: bool,
    times: int,
) -> None:
    """offered: whether the teacher gives access to its output layer. times: the number of copies of each sequence."""
    student, teacher = Tiny(seed, **options), Tiny(seed + 1)
    batches = [
        Batch(tokens=batch.tokens.repeat(times, 1), labels=batch.labels.repeat(times, 1))
        for batch in batches_of(seed, [(3, 5), (1, 2), (2, 7)])
    ]
    expected = oracle(student, teacher, batches, weights)
    kind = torch.float64 if dtype == "float64" else torch.float32
    frozen = (teacher if offered else models.Logits(teacher)).to(kind)
    pair = subject.computing_in(dtype, student.to(kind)), subject.computing_in(dtype, frozen)
    with LogitDtypes() as products:
        sums = window(subject, *pair, batches, weights, rows=rows, metrics=True).sums
    case = f"{dtype}, chunks of {rows} rows, sequences {times} times"
    assert_equal(f"{case}: data types of logits", products.dtypes, {dtype})
    assert_gradients(case, student, expected, ALLOWED[dtype])
    for name in sums.keys() & expected.sums.keys() if dtype != "bfloat16" else ():
        error, wanted = abs(float(sums[name]) - expected.sums[name]), expected.sums[name]
        assert error <= ALLOWED[dtype] * max(abs(wanted), 1.0), f"{case}: {name} is {sums[name]}; expected {wanted}"


def _text(seed: int) -> Sequences:
    bytes_N = torch.randint(V, (17,), generator=torch.Generator().manual_seed(seed)).byte()
    return Sequences(bytes_N=bytes_N, length=5, batch_size=3, device=torch.device("cpu"))


@given(seed=SEEDS, weights=WEIGHTS, rows=st.integers(1, 9))
def falsify_an_evaluation_has_the_sums_of_all_logits(subject: Any, seed: int, weights: Weights, rows: int) -> None:
    """Evaluate models in train mode after a step that raised an error."""
    (student, teacher), text = _pair(seed, dropout=0.5), _text(seed)
    batches = [text.batch(torch.arange(len(text)), number) for number in range(1, text.batches + 1)]
    expected = oracle(student, teacher, batches, weights).sums
    broken = Batch(tokens=batches[0].tokens, labels=torch.full_like(batches[0].labels, V))
    assert_refused("a label outside", lambda: window(subject, student, teacher, [broken], weights), f"label {V}")
    shape = [*broken.tokens.shape, V]
    assert_equal("the shape of the model's logits after an error", list(student(broken.tokens).shape), shape)
    with chunks_of(rows):
        sums = subject.evaluate(subject.ModuleTeacher(teacher, V), subject.ModuleStudent(student, V), text, weights)
    modes = student.training, student.dropout.training
    assert_equal("train mode of student and dropout after an evaluation", modes, (True, True))
    for name in expected.keys() - {"loss"}:
        actual, wanted = sums[name].sum, expected[name]
        assert abs(actual - wanted) <= 1e-10, f"chunks of {rows} rows: {name} is {actual}; expected {wanted}"
    assert_equal("gradients after an evaluation", list(_gradients(student)), [])


SHARED = [
    *itertools.product([("truncate", V, V + 3), ("truncate-student", V + 3, V)], DIVERGENCES),
    *itertools.product([("pad", V + 3, V)], ["forward_kl", "jensen_shannon"]),  # the teacher gives 0 to some tokens
    *itertools.product([("pad", V, V + 3)], ["reverse_kl", "jensen_shannon"]),  # the student does
]
"""The setting share_vocabulary, the sizes of student and teacher, and a divergence that is finite for them."""


@given(seed=SEEDS, shared=st.sampled_from(SHARED), bias=st.booleans(), capped=st.booleans())
@example(seed=0, shared=(("pad", V + 3, V), "forward_kl"), bias=False, capped=True)
def falsify_cut_and_padded_vocabularies(
    subject: Any, seed: int, shared: tuple[tuple[str, int, int], str], bias: bool, capped: bool
) -> None:
    """Share vocabularies of different sizes. capped: with a factor and a soft cap of the logits."""
    (mode, *sizes), divergence = shared
    student, teacher = (Tiny(seed + k, size, bias=bias).double() for k, size in enumerate(sizes))
    for model in (student, teacher) if capped else ():
        keys, model.after = NAMED["a factor and a soft cap"]
        model.config = SimpleNamespace(**keys)
    batches = batches_of(seed, [(3, 5), (2, 4)])
    weights = Weights(temperature=2.0, ce_weight=0.3, kd_weight=0.7, divergence=divergence)
    expected = oracle(student, teacher, batches, weights, vocabulary=V + 3 if mode == "pad" else V)
    with chunks_of(4):
        learner, frozen = subject.ModuleStudent(student, sizes[0]), subject.ModuleTeacher(teacher, sizes[1])
        providers = subject.share_vocabulary(frozen, learner, mode)
        subject.kd_window(*providers, batches, weights)
        head, _ = providers[0].head(batches[0])
        for places in (torch.arange(15), torch.arange(0)):
            actual = torch.cat([chunk.clone() for chunk in head.logits_in_chunks(places)])
            wanted = providers[0].logits(batches[0]).flatten(0, 1)[places]
            is_close = actual.shape == wanted.shape and torch.allclose(actual, wanted, rtol=0, atol=EXACT)
            assert is_close, f"{mode}: the chunks of {len(places)} rows have the logits {actual}; expected {wanted}"
    assert_gradients(mode, student, expected, EXACT)


def _assert_same_in_chunks(case: str, results: Callable[[], list[Tensor]]) -> None:
    """Assert that results with chunks of four rows equal the results with all logits at once."""
    all_logits = results()
    with chunks_of(4):
        chunked = results()
    for number, (expected, actual) in enumerate(zip(all_logits, chunked, strict=True)):
        error, allowed = float((expected - actual).abs().max()), EXACT * max(float(expected.abs().max()), 1.0)
        assert error <= allowed, f"{case}: result {number} is {actual}; expected {expected}, error {error:.1e}"


def _gradients(module: nn.Module) -> dict[str, Tensor]:
    return {name: p.grad for name, p in module.named_parameters() if p.grad is not None}


@given(seed=SEEDS, tied=st.booleans())
def falsify_hidden_states_are_matched_beside_chunks(subject: Any, seed: int, tied: bool) -> None:
    """Compare features in chunks with features beside all logits, which the contract `feature-training` checks."""
    weights = Weights(temperature=2.0, ce_weight=0.3, kd_weight=0.7, feature_weight=0.5)

    def results() -> list[Tensor]:
        student, teacher = _pair(seed, tied=tied)
        sums = window(subject, student, teacher, batches_of(seed, [(3, 5), (2, 4)]), weights, rows=None).sums
        return [sums["feature"], sums["loss"], *_gradients(student).values()]

    _assert_same_in_chunks("with features", results)


class _TopKTeacher:
    """A teacher that gives its k most probable tokens only."""

    vocab_size = V

    def __init__(self, model: nn.Module, k: int, temperature: float) -> None:
        self.model, self.k, self.temperature = model, k, temperature

    def top_k(self, batch: Batch) -> TopK:
        return keep_top_k(self.model(batch.tokens).detach(), self.k, self.temperature)


@given(seed=SEEDS, k=st.sampled_from([0, 1, 4, V]), divergence=st.sampled_from(sorted(DIVERGENCES)))
def falsify_partly_known_teachers_are_compared_in_chunks(subject: Any, seed: int, k: int, divergence: str) -> None:
    """Compare chunks with all logits, which the contract `teacher-outputs` checks. k: known tokens; 0: no teacher."""
    weights = Weights(temperature=2.0, ce_weight=0.3, kd_weight=0.7 if k else 0.0, divergence=divergence)
    batches = batches_of(seed, [(3, 5), (2, 4)])

    def results() -> list[Tensor]:
        student, model = _pair(seed)
        teacher, learner = _TopKTeacher(model, k, 2.0), subject.ModuleStudent(student, V)
        step = subject.kd_window(teacher, learner, batches, weights, metrics=True, run_teacher=k > 0)
        sums = subject.evaluate(teacher, learner, _text(seed), weights) if k else {}
        return [*step.sums.values(), *(torch.tensor(x.sum) for x in sums.values()), *_gradients(student).values()]

    _assert_same_in_chunks(f"{k} tokens known", results)


DEVICES = st.sampled_from(["cpu", "cuda"])


@given(seed=SEEDS, teacher_on=DEVICES, batch_on=DEVICES, scored=st.sampled_from([0.0, 0.6, 1.0]))
def falsify_chunks_stay_on_their_device(subject: Any, seed: int, teacher_on: str, batch_on: str, scored: float) -> None:
    """Train on fake CUDA, where the trainer reads unscored rows too: to select rows, the host would have to wait."""
    (student, teacher), lines = _pair(seed, bias=True), list[str]()
    batches = batches_of(seed, [(3, 5), (2, 4)], scored)
    expected = oracle(student, teacher, batches, USUAL)
    with fake_cuda():
        pair = moved(student, "cuda"), moved(teacher, teacher_on)
        placed = [Batch(tokens=batch.tokens.to(batch_on), labels=batch.labels.to(batch_on)) for batch in batches]
        window(subject, *pair, placed, USUAL, note=lines.append)
        assert_equal("devices of gradients", {str(x.device) for x in _gradients(student).values()}, {"cuda:0"})
        actual = {name: gradient.cpu() for name, gradient in _gradients(student).items()}
    assert_equal("lines about models without chunks", lines, [])
    for name, wanted in expected.gradients.items():
        error = float((actual[name] - wanted).abs().max())
        assert error <= EXACT, f"the gradient of {name} is {actual[name]}; expected {wanted}, error {error:.1e}"


@given(seed=SEEDS)
def falsify_ranks_have_the_gradient_of_all_logits(subject: Any, seed: int) -> None:
    batches = batches_of(seed, [(3, 5), (1, 2), (2, 7), (0, 3)])  # the last has no sequence

    def work(rank: int) -> None:
        for strategy, tied in itertools.product(("ddp", "fsdp2"), (False, True)):
            student, teacher = _pair(seed, tied=tied)
            expected = oracle(student, teacher, batches, USUAL)
            if strategy == "ddp":
                module: nn.Module = DistributedDataParallel(student)
                parallel = subject.DataParallel(module)
            else:
                module = subject.shard(student, torch.device("cpu"))
                parallel = subject.ShardedParallel(module)
            window(subject, module, teacher, batches[rank::2], USUAL, rows=3, parallel=parallel)
            assert_gradients(f"rank {rank}, {strategy}, tied: {tied}", student, expected, EXACT)

    run_ranks(2, work)


@given(
    seed=SEEDS,
    tied=st.booleans(),
    bias=st.booleans(),
    dtype=st.sampled_from(["float64", "bfloat16"]),
    rescaled=st.booleans(),
)
@example(seed=0, tied=True, bias=True, dtype="float64", rescaled=True)
def falsify_a_sharded_teacher_gives_its_output_layer(
    subject: Any, seed: int, tied: bool, bias: bool, dtype: str, rescaled: bool
) -> None:
    """Divide the teacher among ranks. Its logits are requested once, by the check of its output layer."""
    batches = batches_of(seed, [(3, 5), (1, 2), (2, 7), (0, 3)])

    def work(rank: int) -> None:
        student, teacher = Tiny(seed), Tiny(seed + 1, tied=tied, bias=bias)
        kind = torch.float64 if dtype == "float64" else torch.float32
        for model in (student, teacher) if rescaled else ():
            keys, model.after = NAMED["a factor and a soft cap"]
            model.config = SimpleNamespace(**keys)
        expected, calls = oracle(student, teacher, batches, USUAL), list[Batch]()
        frozen = subject.shard(teacher.to(kind), torch.device("cpu"))
        module = subject.shard(student.to(kind), torch.device("cpu"))
        providers = [subject.ModuleTeacher(subject.computing_in(dtype, frozen), V, note=calls.append)]
        providers.append(subject.ModuleStudent(subject.computing_in(dtype, module), V, note=calls.append))
        logits = providers[0].logits
        providers[0].logits = lambda batch: calls.append(batch) or logits(batch)
        with chunks_of(3):
            subject.kd_window(*providers, batches[rank::2], USUAL, parallel=subject.ShardedParallel(module))
        assert_equal(f"rank {rank}: calls for all logits", len(calls), 1)
        case = f"rank {rank}, tied: {tied}, {dtype}, logits with a factor and a soft cap: {rescaled}"
        assert_gradients(case, student, expected, ALLOWED[dtype])

    run_ranks(2, work)


@given(seed=SEEDS, micro_batches=st.integers(1, 3), tied=st.booleans())
@example(seed=0, micro_batches=3, tied=False)
def falsify_output_layers_are_gathered_once_in_a_step(subject: Any, seed: int, micro_batches: int, tied: bool) -> None:
    """Count the all-gathers of a step and of an evaluation, with a divided teacher and a divided student or a DDP one.

    Each model has one layer, which is gathered in every forward, and for the student in every backward too.
    """
    batches = batches_of(seed, [(3, 5), (1, 2), (2, 7), (0, 3), (1, 4), (2, 3)][: 2 * micro_batches])
    broken = [Batch(tokens=batch.tokens, labels=torch.full_like(batch.labels, V)) for batch in batches[:2]]

    def work(rank: int) -> None:
        for strategy, rows in itertools.product(("ddp", "fsdp2"), (3, None)):
            case = f"rank {rank}, {strategy}, {micro_batches} micro-batches, tied: {tied}, chunks: {rows}"
            student, teacher = Tiny(seed, tied=tied).double(), Tiny(seed + 1, tied=tied).double()
            expected = oracle(student, teacher, batches, USUAL)
            frozen = subject.shard(teacher, torch.device("cpu"))
            is_sharded = strategy == "fsdp2"
            if is_sharded:
                module: nn.Module = subject.shard(student, torch.device("cpu"))
                parallel = subject.ShardedParallel(module, teacher=frozen)
            else:
                module = DistributedDataParallel(student)
                parallel = subject.DataParallel(module, teacher=frozen)
            providers = subject.ModuleTeacher(frozen, V), subject.ModuleStudent(module, V)
            models_sharded = 1 + is_sharded

            gathers = partial(_gathers, rows, providers, parallel)
            gathers(subject.kd_window, batches[rank::2])  # the first one checks the output layers
            sharded = [frozen, module] if is_sharded else [frozen]
            _assert_divided(f"{case}, after a step", *sharded)
            module.zero_grad()
            count = gathers(subject.kd_window, batches[rank::2])
            assert_gradients(case, student, expected, EXACT)
            assert_equal(f"{case}: gathers in a step", count, models_sharded + micro_batches * (3 if is_sharded else 1))
            text = _text(seed)
            batches_of_rank = -(-text.batches // 2)
            count = gathers(subject.evaluate, text)
            assert_equal(f"{case}: gathers in an evaluation", count, models_sharded * (1 + batches_of_rank))
            with suppress(LabelError):
                gathers(subject.kd_window, [*batches[rank::2], broken[rank]])
            _assert_divided(f"{case}, after a step with an error", *sharded)

    run_ranks(2, work)


def _gathers(rows: int | None, providers: Any, parallel: Any, call: Callable[..., object], *arguments: Any) -> int:
    """Return the number of all-gathers in a call; rows: of a chunk, None for no chunks."""
    with nullcontext() if rows is None else chunks_of(rows), Collectives() as collectives:
        call(*providers, *arguments, USUAL, parallel=parallel)
    return sum("allgather" in name for name, *_ in collectives.calls)


def _assert_divided(case: str, *modules: nn.Module) -> None:
    names = [n for module in modules for n, tensor in module.named_parameters() if not isinstance(tensor, DTensor)]
    assert_equal(f"{case}: weights that are still gathered, and take memory", names, [])


class LogitDtypes(TorchDispatchMode):
    """Record the data types of matrix products with V columns, which are logits."""

    def __init__(self) -> None:
        super().__init__()
        self.dtypes = set[str]()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        if function.overloadpacket.__name__ in ("mm", "addmm") and result.shape[-1] == V:
            self.dtypes.add(str(result.dtype).removeprefix("torch."))
        return result


class LargestTensor(TorchDispatchMode):
    """Record the bytes of the largest tensor that an operation returns."""

    bytes = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, Tensor):
                self.bytes = max(self.bytes, tensor.numel() * tensor.element_size())
        return result


def falsify_no_tensor_has_all_logits(subject: Any) -> None:
    """1152 rows of 16,384 logits are 144 MiB of the teacher, in float64; with the defaults, a chunk has 64 MiB."""
    vocabulary, B, T = 16_384, 18, 64
    config = DecoderConfig(vocab_size=vocabulary, layers=1, width=4, heads=1)
    teacher, student = new_decoder(config, 1).double(), new_decoder(config, 0)
    providers = subject.ModuleTeacher(teacher, vocabulary), subject.ModuleStudent(student, vocabulary)
    rows = Sequences(bytes_N=torch.zeros(B * T, dtype=torch.uint8), length=T, batch_size=B, device=torch.device("cpu"))
    batches = batches_of(0, [(B, T)], scored=1.0)
    calls: dict[str, Callable[[], object]] = {
        "a step": lambda: subject.kd_window(*providers, batches, USUAL, metrics=True),
        "an evaluation": lambda: subject.evaluate(*providers, rows, USUAL),
    }
    for name, call in calls.items():
        with LargestTensor() as largest:
            call()
        limit = 64 * 2**20
        assert 0 < largest.bytes <= limit, f"{name} has a tensor of {largest.bytes} bytes; expected at most {limit}"


CHANGES: dict[str, Callable[[Tensor], Tensor]] = {
    "a soft cap of 30": lambda logits: 30 * torch.tanh(logits / 30),
    "a soft cap of 500": lambda logits: 500 * torch.tanh(logits / 500),
    "a scale": lambda logits: logits / 8,
    "a banned token": lambda logits: logits.where(torch.arange(logits.shape[-1]) != 3, -100.0),
}
"""Changes of logits that the configuration does not mention."""


NAMED: dict[str, tuple[dict[str, float | None], Callable[[Tensor], Tensor]]] = {
    "a factor and a soft cap": (
        {"logit_scale": 2.0, "final_logit_softcapping": 5.0},
        lambda x: 5 * torch.tanh(2 * x / 5),
    ),
    "an unused soft cap": ({"final_logit_softcapping": None, "logits_soft_cap": 3.0}, lambda x: x),
}
for _key in ("final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap"):
    NAMED[f"the soft cap {_key}"] = {_key: 3.0}, lambda x: 3 * torch.tanh(x / 3)
for _key in ("logit_scale", "logits_scaling", "lm_head_multiplier"):
    NAMED[f"the divisor {_key}"] = {_key: 8.0}, lambda x: x / 8
    NAMED[f"the factor {_key}"] = {_key: 0.25}, lambda x: x * 0.25
"""Keys of a configuration, and the change of the logits by a model with them."""


@given(
    seed=SEEDS,
    changed=st.sampled_from([("student",), ("teacher",), ("student", "teacher")]),
    weights=WEIGHTS,
    bias=st.booleans(),
    dtype=st.sampled_from(sorted(ALLOWED)),
)
@example(seed=0, changed=("student",), weights=USUAL, bias=True, dtype="float64")
@example(seed=0, changed=("teacher",), weights=USUAL, bias=False, dtype="float64")
def falsify_rescaled_logits_are_formed_in_chunks(
    subject: Any, seed: int, changed: tuple[str, ...], weights: Weights, bias: bool, dtype: str
) -> None:
    for change in NAMED:
        _assert_rescaled_in_chunks(subject, seed, change, changed, weights, bias=bias, dtype=dtype)


def _assert_rescaled_in_chunks(
    subject: Any, seed: int, change: str, changed: tuple[str, ...], weights: Weights, *, bias: bool, dtype: str
) -> None:
    """Assert the oracle's results and no notice, for a change of logits that the configuration names.

    The configuration of the teacher is nested, as in models of text and images.
    """
    student, teacher, lines = Tiny(seed, bias=bias), Tiny(seed + 1), list[str]()
    for name in changed:
        model: Any = {"student": student, "teacher": teacher}[name]
        keys, model.after = NAMED[change]
        config = SimpleNamespace(**keys)
        nested = SimpleNamespace(get_text_config=lambda config=config: config)
        model.config = config if name == "student" else nested
    batches = batches_of(seed, [(3, 5), (2, 7)])
    expected = oracle(student, teacher, batches, weights)
    kind = torch.float64 if dtype == "float64" else torch.float32
    pair = subject.computing_in(dtype, student.to(kind)), subject.computing_in(dtype, teacher.to(kind))
    sums = window(subject, *pair, batches, weights, rows=3, metrics=True, note=lines.append).sums
    case = f"{change} of {changed} in {dtype}"
    assert_equal(f"{case}: lines", lines, [])
    assert_gradients(case, student, expected, ALLOWED[dtype])
    for name in sums.keys() & expected.sums.keys() if dtype == "float64" else ():
        error, wanted = abs(float(sums[name]) - expected.sums[name]), expected.sums[name]
        assert error <= EXACT * max(abs(wanted), 1.0), f"{case}: {name} is {sums[name]}; expected {wanted}"


def _model_of_transformers(name: str, seed: int) -> Any:
    import transformers

    from reference_trainer.huggingface.models import Causal

    options = {"Gemma2": {"final_logit_softcapping": 3.0}, "Granite": {"logits_scaling": 4.0}, "Cohere": {}}[name]
    shape = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "head_dim": 4}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    options |= {"logit_scale": 0.25} if name == "Cohere" else {}
    config = getattr(transformers, f"{name}Config")(vocab_size=V, **shape, **heads, **tokens, **options)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = getattr(transformers, f"{name}ForCausalLM")(config).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(8)  # so that logits reach the cap
    return Causal(model)


@given(name=st.sampled_from(["Gemma2", "Granite", "Cohere"]), seed=SEEDS)
@example(name="Gemma2", seed=0)
@example(name="Granite", seed=0)
@example(name="Cohere", seed=0)
def falsify_models_of_transformers_are_rescaled(subject: Any, name: str, seed: int) -> None:
    """Compare with autograd through the logits that the models of transformers return."""
    student, teacher = (_model_of_transformers(name, seed + k) for k in range(2))
    batches, lines = batches_of(seed, [(3, 5), (2, 7)]), list[str]()
    expected = oracle(student, teacher, batches, USUAL)
    window(subject, student, teacher, batches, USUAL, rows=3, note=lines.append)
    assert_equal(f"{name}: lines", lines, [])
    assert_gradients(name, student, expected, EXACT)


@given(
    seed=SEEDS,
    change=st.sampled_from(sorted(CHANGES)),
    changed=st.sampled_from(["student", "teacher"]),
    named=st.sampled_from([{}, {"final_logit_softcapping": 31.0, "logit_scale": 0.2}]),
)
def falsify_changed_logits_are_formed_by_the_model(
    subject: Any, seed: int, change: str, changed: str, named: dict[str, float]
) -> None:
    """Change the logits in a way that the configuration does not name.

    Weights are small, so that a cap changes the logits by less than a rounding error of float32. named: keys of the
    configuration, which do not describe the change.
    """
    (student, teacher), lines = _pair(seed), list[str]()
    model: Any = {"student": student, "teacher": teacher}[changed]
    model.after, model.config = CHANGES[change], SimpleNamespace(**named)
    with torch.no_grad():
        for parameter in (*student.parameters(), *teacher.parameters()):
            parameter.mul_(0.01)
    batches = batches_of(seed, [(3, 5), (2, 7)])
    expected = oracle(student, teacher, batches, USUAL)
    window(subject, student, teacher, batches, USUAL, rows=3, note=lines.append)
    assert_gradients(f"{change} of the {changed}", student, expected, EXACT)
    words = f"the {changed} forms the logits of all tokens at once"
    is_expected = [line.startswith(words) for line in lines] == [True]
    assert is_expected, f"{change} of the {changed}: the lines are {lines}; expected one that begins with {words!r}"


class Twice(Tiny):
    """A model that applies its output layer twice, and returns the mean."""

    def forward(self, tokens: Tensor, output_hidden_states: bool = False) -> Any:
        states = self.embedding(tokens)
        states = states + self.layers[0](states)
        return (self.head(states) + self.head(states)) / 2


class Scaled(nn.Linear):
    """An output layer whose result is twice the matrix product."""

    def forward(self, input: Tensor) -> Tensor:
        return Scaled.twice(self, input)

    @staticmethod
    def twice(layer: nn.Linear, input: Tensor) -> Tensor:
        return nn.Linear.forward(layer, input) * 2


def falsify_other_output_layers_are_left_alone(subject: Any) -> None:
    """Train models whose output layer is applied twice, missing, of another class, hooked, or patched."""
    none, other, hooked, patched = Tiny(3), Tiny(4), Tiny(5), Tiny(6)
    none.get_output_embeddings = lambda: None
    other.head = Scaled(4, V, bias=False)
    hooked.head.register_forward_hook(lambda layer, inputs, output: output * 2)
    patched.head.forward = MethodType(Scaled.twice, patched.head)  # as the hooks of accelerate do
    students = {"twice": Twice(2), "none": none, "other": other, "hooked": hooked, "a forward of its own": patched}
    for name, student in students.items():
        (_, teacher), batches, lines = _pair(0), batches_of(0, [(3, 5)]), list[str]()
        expected = oracle(student.double(), teacher, batches, USUAL)
        window(subject, student, teacher, batches, USUAL, rows=3, note=lines.append)
        assert len(lines) == 1, f"{name}: the lines are {lines}; expected one"
        assert_gradients(name, student, expected, EXACT)
