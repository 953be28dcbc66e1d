"""Attacks on attention within the documents of packed rows: kernels, whole models, and waits for the GPU."""

import copy
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.models.gemma2 import modeling_gemma2
from transformers.models.llama import modeling_llama
from transformers.models.llama4 import modeling_llama4
from transformers.models.mistral import modeling_mistral

from falsifiers.packed_attention import kernels
from falsifiers.support.assertions import assert_equal, refusal
from falsifiers.support.fake_cuda import FakeCuda, fake_cuda, install, moved
from reference_trainer.data.documents import Document, pack_documents
from reference_trainer.errors import SettingError

SDPA, FLASH, FLEX = "sdpa", kernels.FLASH_ATTENTION_2, "flex_attention"
IMPLEMENTATIONS = st.sampled_from([SDPA, FLASH, FLEX])


@dataclass(frozen=True, slots=True, eq=False)
class States:
    """Random queries, keys and values [B, H, T, D] of packed rows.

    Attributes:
        rows: The lengths of the documents of each row.
        heads: The number of heads of keys and values.
        shared: The number of query heads that share a head of keys and values.
        window: The number of keys that a query sees, its own included; None for all keys.
        seed: The seed of the tensors.
        width: The width D of a head.
    """

    rows: list[list[int]]
    heads: int
    shared: int
    window: int | None
    seed: int
    width: int = 8

    def tensors(self, dtype: torch.dtype = torch.float64) -> list[Tensor]:
        draw, B, T = torch.Generator().manual_seed(self.seed), len(self.rows), sum(self.rows[0])
        heads = (self.heads * self.shared, self.heads, self.heads)
        shapes = [(B, H, T, self.width) for H in heads]
        return [torch.randn(shape, generator=draw, dtype=torch.float64).to(dtype) for shape in shapes]

    @property
    def options(self) -> dict[str, Any]:
        return {"scaling": 0.3, "dropout": 0.0, "sliding_window": self.window}

    @property
    def module(self) -> Any:
        config = SimpleNamespace(_attn_implementation="by_document")
        return SimpleNamespace(config=config, is_causal=True, training=False, num_key_value_groups=self.shared)

    def oracle(self, tensors: list[Tensor]) -> Any:
        return kernels.documents_alone(tensors, self.rows, 0.3, self.window)


@st.composite
def states(draw: st.DrawFn) -> States:
    """Draw up to 3 rows of equal length, of up to 6 documents each."""
    lengths = st.lists(st.integers(1, 9), min_size=1, max_size=5)
    rows = draw(st.lists(lengths, min_size=1, max_size=3))
    width = max(map(sum, rows))
    rows = [[*row, *([width - sum(row)] if width > sum(row) else [])] for row in rows]
    window = draw(st.none() | st.integers(1, 6))
    return States(rows, draw(st.integers(1, 2)), draw(st.sampled_from([1, 2, 3])), window, draw(st.integers(0, 2**20)))


LONG = States([[3, 400, 17], [130, 126, 164], [420]], 1, 1, None, 0)
"""Rows of several blocks of 128 positions of `flex_attention`, some of them within one document."""
NARROW = States([[3, 400, 17], [420], [150, 270]], 1, 2, 140, 1)
SHORT = States([[3, 1, 2], [6], [1, 5]], 1, 2, 2, 0)


def assert_close(label: str, actual: Tensor, expected: Any, allowed: float) -> None:
    """Assert that no element differs by more than `allowed`; NaN differs from everything."""
    values = actual.detach().cpu().double().numpy()
    errors = np.nan_to_num(np.abs(values - expected), nan=np.inf)
    at = np.unravel_index(int(errors.argmax()), errors.shape)
    case = f"{label}: element [b, t, h, d] {at} is {values[at]:.9g}; expected {expected[at]:.9g}, allowed {allowed:.3g}"
    assert errors[at] <= allowed, case


@given(
    case=states(),
    implementation=IMPLEMENTATIONS,
    scaling=st.sampled_from([0.3, None]),
    softcap=st.sampled_from([None, 1.0]),
    has_sinks=st.booleans(),
)
@example(case=SHORT, implementation=SDPA, scaling=None, softcap=None, has_sinks=False)
@example(case=SHORT, implementation=SDPA, scaling=None, softcap=1.0, has_sinks=False)
@example(case=SHORT, implementation=FLASH, scaling=0.3, softcap=None, has_sinks=True)
def falsify_each_document_attends_to_itself(
    subject: Any,
    device: str,
    case: States,
    implementation: str,
    scaling: float | None,
    softcap: float | None,
    has_sinks: bool,
) -> None:
    """Compare with attention of each document alone in float64, and assert that gradients are finite.

    scaling: None is the default, width ** -0.5. has_sinks: with one additional logit per head (`s_aux`).
    """
    on_gpu = device == "cuda"
    if on_gpu:  # kernels of CUDA need heads of width 16 or more, and 16-bit numbers
        case = States(case.rows, case.heads, case.shared, case.window, case.seed, width=64)
        implementation, softcap, has_sinks = SDPA if implementation == FLASH else implementation, None, False
    tensors = [x.to(device) for x in case.tensors(torch.bfloat16 if on_gpu else torch.float64)]
    leaves, sinks = [x.requires_grad_() for x in tensors], torch.linspace(-1, 2, case.heads * case.shared).double()
    options = {**case.options, "scaling": scaling, "softcap": softcap, "s_aux": sinks if has_sinks else None}
    rows = subject.PackedRows(case.rows)
    actual, _ = subject.attend_documents(case.module, *leaves, None, rows, implementation=implementation, **options)
    scale = case.width**-0.5 if scaling is None else scaling
    expected = kernels.documents_alone(tensors, case.rows, scale, case.window, softcap, options["s_aux"])
    # In bfloat16, weights and sums of values up to 5 are rounded several times, each by a relative 2^-9.
    label = f"attention of documents {case.rows}, {scaling=}, {softcap=}, sinks {options['s_aux']}"
    assert_close(label, actual, expected, 0.1 if on_gpu else 1e-12)
    actual.square().sum().backward()
    is_finite = [x.grad is not None and bool(x.grad.isfinite().all()) for x in leaves]
    assert_equal(f"{label}: whether gradients of queries, keys and values are finite", is_finite, [True] * 3)


@given(case=states(), implementation=IMPLEMENTATIONS, softcap=st.sampled_from([None, 30.0]))
def falsify_dropout_of_attention_is_applied(
    subject: Any, case: States, implementation: str, softcap: float | None
) -> None:
    """Apply a dropout of 1, after which all results are 0, and of 0.5 to documents of one token.

    Such a token has one key of weight 1, so its result is 0 or twice its value.
    """
    options = {**case.options, "dropout": 1.0, "softcap": softcap, "implementation": implementation}
    rows = subject.PackedRows(case.rows)
    actual, _ = subject.attend_documents(case.module, *case.tensors(), None, rows, **options)
    assert not actual.any(), (
        f"documents {case.rows}, {softcap=}: with a dropout of 1 the result is {actual}; expected 0"
    )
    single, options["dropout"] = replace(case, rows=[[1] * 40], shared=1), 0.5
    tensors, rows = single.tensors(), subject.PackedRows(single.rows)
    actual, _ = subject.attend_documents(single.module, *tensors, None, rows, **options)
    factors = (actual / tensors[2].transpose(1, 2)).unique().tolist()
    assert_equal(f"factors of values with a dropout of 0.5, {softcap=}", factors, [0.0, 2.0])


@given(case=states(), implementation=IMPLEMENTATIONS)
@example(case=LONG, implementation=FLEX)
@example(case=NARROW, implementation=FLEX)
@example(case=SHORT, implementation=SDPA)
@example(case=SHORT, implementation=FLASH)
def falsify_kernels_get_bounds_windows_and_lengths(subject: Any, case: States, implementation: str) -> None:
    """Call the kernels, replaced by the oracle's loops, for two layers with different windows, as in Gemma 2."""
    tensors, rows = case.tensors(), subject.PackedRows(case.rows)
    other = replace(case, window=None if case.window else 3)
    with fake_cuda(), kernels.replaced() as loaded:
        placed = [x.to("cuda") for x in tensors]
        for layer in (other, case):
            if implementation == SDPA:
                actual = subject.attend_by_length(*placed, rows, **layer.options)
            else:
                position_ids = torch.zeros(placed[0].shape[0], placed[0].shape[2]).to("cuda")
                arguments = (case.module, *placed, None, rows)
                options = {"implementation": implementation, "position_ids": position_ids, **layer.options}
                actual, _ = subject.attend_documents(*arguments, **options)
            label = f"{implementation} of documents {case.rows}, window {layer.window}"
            label += f" after a layer with window {other.window}" if layer is case else ""
            assert_close(label, actual.cpu(), layer.oracle(tensors), 1e-12)
    assert_equal("names of the loaded kernels", loaded, [FLASH] * 2 if implementation == FLASH else [])


SHAPE = {
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "pad_token_id": None,
}


def new_model(subject: Any, kind: str, implementation: str) -> Any:
    """Return a random model in float64 whose configuration names an implementation, which need not be installed."""
    torch.manual_seed(0)
    if kind == "llama":
        model: Any = modeling_llama.LlamaForCausalLM(modeling_llama.LlamaConfig(**SHAPE))
    elif kind == "mistral":
        model = modeling_mistral.MistralForCausalLM(modeling_mistral.MistralConfig(**SHAPE, sliding_window=3))
    else:  # layers with and without a window, and caps of the scores
        settings = {"sliding_window": 3, "attn_logit_softcapping": 2.0, "query_pre_attn_scalar": 4}
        model = modeling_gemma2.Gemma2ForCausalLM(modeling_gemma2.Gemma2Config(**SHAPE, **settings))
    model.config._attn_implementation_internal = implementation
    for parameter in model.parameters():
        parameter.data = torch.randn(parameter.shape) / 2
    return subject.Causal(model.double()).eval()


def pack_random(seed: int, longest: int = 9) -> tuple[list[Document], Any]:
    """Return 6 random documents of up to `longest` - 1 tokens, and a batch of packed rows of 16 tokens."""
    draw = np.random.default_rng(seed)
    sizes = draw.integers(2, longest, 6)
    documents = [Document(torch.from_numpy(draw.integers(0, 32, size))) for size in sizes]
    return documents, pack_documents(documents, length=16, padding_id=0)


def spans(batch: Any) -> list[tuple[int, Tensor]]:
    """Return the row and the positions of each document of a batch, without padding."""
    places = [(b, (row == number).nonzero()[:, 0]) for b, row in enumerate(batch.segments) for number in row.unique()]
    return [(b, at) for b, at in places if int(batch.segments[b, at[0]])]


# sdpa in transformers has no soft cap, which Gemma 2 needs.
MODELS = [(kind, name) for kind in ("llama", "mistral", "gemma2") for name in (SDPA, FLASH, FLEX)]
MODELS.remove(("gemma2", SDPA))


@given(seed=st.integers(0, 2**20))
@example(seed=1)
def falsify_documents_of_a_model_are_isolated(subject: Any, seed: int) -> None:
    for number, (kind, implementation) in enumerate(MODELS):
        _assert_documents_are_isolated(subject, kind, implementation, seed + number)


def _assert_documents_are_isolated(subject: Any, kind: str, implementation: str, seed: int) -> None:
    """Compare logits and gradients with each document alone, and change a document, which must change no other."""
    model, notes = new_model(subject, kind, implementation), list[str]()
    alone = copy.deepcopy(model)
    alone.model.set_attn_implementation(kernels.ORACLE)
    model.train(bool(seed % 2))
    subject.isolate_documents("the model", model, notes.append)
    assert_equal("training mode", model.training, bool(seed % 2))
    assert_equal(f"notes about {kind} with {implementation}", notes, [])
    _, batch = pack_random(seed)
    logits = model(batch.tokens, batch.segments).logits
    losses = []
    for b, at in spans(batch):
        expected = alone(batch.tokens[b, at][None]).logits[0]
        losses.append(expected.square().sum())
        error = float((logits[b, at] - expected).detach().abs().max())
        case = f"{kind} with {implementation}: logits of the document at positions {at.tolist()} of row {b}"
        assert error <= 1e-10, f"{case} differ by {error:.3g} from the document alone; allowed 1e-10"
    torch.stack(losses).sum().backward()
    torch.stack([logits[b, at].square().sum() for b, at in spans(batch)]).sum().backward()
    for (name, actual), wanted in zip(model.named_parameters(), alone.parameters(), strict=True):
        allowed = 1e-6 * float(wanted.grad.abs().max())  # the norms of transformers sum in float32
        error = float((actual.grad - wanted.grad).abs().max())
        case = f"{kind} with {implementation}: the gradient of {name}"
        assert error <= allowed, f"{case} differs by {error:.3g}, allowed {allowed:.3g}"
    b, at = spans(batch)[seed % len(spans(batch))]
    tokens = batch.tokens.clone()
    tokens[b, at] = (tokens[b, at] + 1) % 32
    with torch.no_grad():
        changed_BT = (model(tokens, batch.segments).logits - logits).abs().amax(-1) > 1e-12
    assert bool(changed_BT[b, at].any()), f"other tokens at {at.tolist()} of row {b} change no logits there"
    changed_BT[b, at] = False
    assert_equal(f"changed logits outside of {at.tolist()} of row {b}", changed_BT.nonzero().tolist(), [])


WAITING = ("tolist", "item", "nonzero", "cpu", "numpy", "__bool__", "__int__", "__float__", "__index__", "__iter__")
"""Functions of a tensor that return values of the device, or need them for a shape."""
READING = ("_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_dim", "repeat_interleave")
"""Operations that read values within another function."""
COPYING = ("to", "cuda", "tensor", "as_tensor")
"""Functions that copy values from the CPU to a GPU, and wait for the copy unless it is queued."""


class Operations(TorchDispatchMode):
    """Record the operations that read values."""

    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self.names = names

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket.__name__ in READING:
            self.names.append(f"aten::{func.overloadpacket.__name__}")
        return func(*args, **(kwargs or {}))


class Waits(TorchFunctionMode):
    """Record the functions that wait for the GPU: reads of its tensors, and copies to it that are not queued.

    device: the class of the tensors that count as tensors of the GPU; `Tensor` counts all tensors.
    """

    def __init__(self, device: type[Tensor]) -> None:
        super().__init__()
        self.device, self.names = device, list[str]()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, options = getattr(func, "__name__", ""), kwargs or {}
        if not any(isinstance(x, self.device) for x in args):
            result = func(*args, **options)
            if isinstance(result, FakeCuda) and name in COPYING and not options.get("non_blocking"):
                self.names.append(f"{name} of {list(result.shape)}")
            return result
        if name in WAITING:
            self.names.append(name)
            return func(*args, **options)
        with Operations(self.names):
            return func(*args, **options)


@given(
    implementation=IMPLEMENTATIONS,
    kind=st.sampled_from(["llama", "mistral"]),
    checkpoints=st.booleans(),
    seed=st.integers(0, 2**20),
)
@example(implementation=SDPA, kind="llama", checkpoints=False, seed=0)
@example(implementation=FLASH, kind="mistral", checkpoints=False, seed=0)
@example(implementation=FLEX, kind="mistral", checkpoints=False, seed=0)
@example(implementation=SDPA, kind="mistral", checkpoints=True, seed=0)
def falsify_forward_and_backward_do_not_wait(
    subject: Any, implementation: str, kind: str, checkpoints: bool, seed: int
) -> None:
    """Train with kernels that only record calls, on fake CUDA tensors; checkpoints: with recomputed activations."""
    model, calls = new_model(subject, kind, implementation), list[str]()
    subject.isolate_documents("the model", model, str)
    for layer in model.model.model.layers:
        layer.self_attn.register_forward_pre_hook(lambda *_: calls.append("layer"))
    # The backward of checkpoints loses the class `FakeCuda`, so it runs on the CPU, and all reads are counted.
    if checkpoints:
        model.model.activation_checkpointing_enable({"use_reentrant": False})
    device = torch.device("cpu" if checkpoints else "cuda")

    def flash(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        cu_seqlens_q: Tensor,
        cu_seqlens_k: Tensor,
        max_seqlen_q: int,
        max_seqlen_k: int,
        softmax_scale: float,
        causal: bool,
    ) -> Tensor:
        calls.append(FLASH)
        return q * 1.0

    def flexible(q: Tensor, *_: Any, **options: Any) -> Any:
        calls.append(FLEX)
        return q * 1.0, SimpleNamespace(lse=q[..., 0])

    _, batch = pack_random(seed)
    with install(), kernels.replaced(flash=flash, flexible=flexible):
        model = moved(model, str(device)).train()
        tokens, segments = batch.tokens.to(device), subject.placed_segments(batch.segments, device)
        with Waits(Tensor if checkpoints else FakeCuda) as waits:
            model(tokens, segments).logits.square().mean().backward()
    assert_equal(f"waits of forward and backward with {implementation} on {device}", waits.names, [])
    # In float64 on the GPU, sdpa has no kernel of variable lengths. Checkpoints run each layer twice.
    called = ["layer"] if checkpoints or implementation == SDPA else ["layer", implementation]
    assert_equal("attention layers and kernels that ran", calls, called * (4 if checkpoints else 2))


@given(implementation=IMPLEMENTATIONS | st.just("eager"), row=st.integers(0, 1))
def falsify_a_model_that_mixes_documents_is_refused(subject: Any, implementation: str, row: int) -> None:
    """Mix the states of one of the two rows with which `isolate_documents` checks a model."""
    model = new_model(subject, "llama", implementation)

    def mix(layer: Any, arguments: Any, states: Tensor) -> Tensor:
        """Replace the states of a row by their cumulative sums, as a convolution or a recurrent layer mixes them."""
        mixed = states.clone()
        if len(states) == 2:
            mixed[row] = states[row].cumsum(0)
        return mixed

    model.model.model.embed_tokens.register_forward_hook(mix)
    message = refusal(lambda: subject.isolate_documents("the student", model, str), SettingError)
    case = f"{implementation}: the message is {message!r}; expected the student and LlamaForCausalLM in it"
    assert "the student" in message and "LlamaForCausalLM" in message, case


@given(seed=st.integers(0, 2**20), chunked=st.integers(0, 1))
def falsify_masks_of_chunks_are_kept(subject: Any, seed: int, chunked: int) -> None:
    """Attend within chunks of 10 tokens in one of two layers; documents of the isolation check are shorter.

    So the check does not notice the chunks, and the model must keep its own masks.
    """
    torch.manual_seed(seed)
    kinds = ["full_attention"] * 2
    kinds[chunked] = "chunked_attention"
    config = modeling_llama4.Llama4TextConfig(
        **SHAPE, attention_chunk_size=10, layer_types=kinds, intermediate_size_mlp=16, moe_layers=[]
    )
    model, notes = subject.Causal(modeling_llama4.Llama4ForCausalLM(config).double().eval()), list[str]()
    for parameter in model.parameters():
        parameter.data = torch.randn(parameter.shape, dtype=torch.float64) / 2
    tokens, segments = torch.randint(32, (1, 25)), torch.tensor([[1] * 17 + [2] * 6 + [0] * 2])
    expected = model(tokens[:, :17]).logits
    subject.isolate_documents("the model", model, notes.append)
    error = float((model(tokens, segments).logits[:, :17] - expected).detach().abs().max())
    assert error <= 1e-10, f"logits of a document of 17 tokens differ by {error:.3g} from it alone; allowed 1e-10"
    assert_equal("notes", notes, ["the model: attention in packed rows forms a mask of length x length"])
