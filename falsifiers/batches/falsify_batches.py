"""Attacks on padded and packed batches: loss, rows, labels and segments on their way to a model.

Subjects: `data.batches`, `data.labels`, `distillation.providers`.
"""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor, nn

from falsifiers.support.assertions import assert_equal
from falsifiers.support.documents import SETTINGS, Documents, documents, fewest_rows, first_fit
from falsifiers.support.oracles import assert_close, assert_refused
from reference_trainer.distillation import providers


def assert_like_alone(case: Documents, batch: Any, device: str) -> None:
    """Assert that a step of two decoders has the sum, count and gradients of the documents one by one."""
    module, size = case.decoder(1, device), case.vocab_size
    teacher = providers.ModuleTeacher(case.decoder(0, device), size)
    result = providers.kd_step(teacher, providers.ModuleStudent(module, size), batch, **SETTINGS)
    total, count, gradients = case.alone(device)
    assert_equal("the scored tokens, compared with the documents one by one", result.count, count)
    # In float64, 4,500 roundings of a sum of at most 30 tokens are 1e-12 of it.
    assert_close("sum", result.sum, total, 1e-12 * (abs(total) + count), "the sum of the documents one by one")
    allowed = 1e-12 * (max(float(gradient.abs().max()) for gradient in gradients.values()) + count)
    for name, parameter in module.named_parameters():
        apart = float((result.count * parameter.grad - gradients[name]).abs().max())
        assert apart <= allowed, f"the gradient of {name} is {apart:.3g} from the gradient of the documents one by one"


@given(case=documents(), padding_id=st.integers(0, 2))
@example(case=Documents(3, [[1, 2, 0], [1, 0]], [0, 0], 0), padding_id=0)
def falsify_padded_batch_is_its_documents(subject: Any, device: str, case: Documents, padding_id: int) -> None:
    assert_like_alone(case, subject.pad_documents(case.build(subject), padding_id=padding_id), device)


@given(case=documents(), padding_id=st.integers(0, 2), room=st.integers(0, 9))
@example(case=Documents(3, [[1, 2, 0], [2, 1]], [0, 0], 0), padding_id=0, room=3)
def falsify_packed_batch_is_its_documents(
    subject: Any, device: str, case: Documents, padding_id: int, room: int
) -> None:
    options = {"length": case.longest + room, "padding_id": padding_id}
    batch = subject.pack_documents(case.build(subject), **options)
    assert_like_alone(case, batch, device)
    documents = [batch.tokens[row, at].tolist() for row, at in subject.document_positions(batch)]
    assert_equal("documents by their positions", sorted(documents), sorted(filter(None, case.tokens)))


SIZES = st.lists(st.integers(0, 6), max_size=9)


@given(sizes=SIZES, room=st.integers(0, 8))
@example(sizes=[3, 3, 1], room=1)
def falsify_first_row_with_room(subject: Any, sizes: list[int], room: int) -> None:
    capacity = max(sizes, default=0) + room
    expected = first_fit(sizes, list(range(len(sizes))), capacity)
    assert_equal(f"sizes {sizes} in rows of {capacity}", subject.first_fit(sizes, capacity), expected)


@given(sizes=st.lists(st.integers(1, 9), max_size=16), room=st.integers(0, 8))
@example(sizes=[1, 2, 3, 4, 2], room=2)
@example(sizes=[1, 2], room=1)  # both orders need as many rows
def falsify_packed_rows_are_few(subject: Any, sizes: list[int], room: int) -> None:
    capacity = max(sizes, default=0) + room
    expected = fewest_rows(sizes, capacity)
    assert_equal(f"sizes {sizes} in rows of {capacity}", subject.pack_sizes(sizes, capacity), expected)
    documents = [subject.Document(torch.zeros(size, dtype=torch.int64)) for size in sizes]
    options = {"length": capacity, "batch_size": 1, "device": torch.device("cpu")}
    packed_rows = subject.rows_of_documents(documents, pack=True, **options)
    assert_equal(f"rows of documents of sizes {sizes} in {capacity}", len(packed_rows), len(expected))


@given(sizes=SIZES, room=st.integers(0, 8), surplus=st.integers(1, 3), at=st.integers(0, 9))
def falsify_longer_documents_are_refused(subject: Any, sizes: list[int], room: int, surplus: int, at: int) -> None:
    capacity = max(sizes, default=0) + room
    at = min(at, len(sizes))
    sizes = [*sizes[:at], capacity + surplus, *sizes[at:]]
    too_long = [subject.Document(torch.zeros(size, dtype=torch.int64)) for size in sizes]
    pack = partial(subject.pack_documents, too_long, length=capacity, padding_id=0)
    words = (f"document {at} has {capacity + surplus} tokens", f"a row has {capacity};")
    for call in (partial(subject.first_fit, sizes, capacity), pack):
        assert_refused(f"sizes {sizes} in rows of {capacity}", call, *words)


@given(size=st.integers(0, 20), length=st.integers(2, 7), data=st.data())
def falsify_split_documents(subject: Any, size: int, length: int, data: st.DataObject) -> None:
    """No token occurs twice, so each identifies its position."""
    prompt = data.draw(st.integers(0, size), label="prompt")
    masks = st.lists(st.booleans(), min_size=size, max_size=size)
    given_N = data.draw(st.none() | masks.map(lambda mask: torch.tensor(mask, dtype=torch.bool)), label="given")
    pieces = subject.split_document(subject.Document(torch.arange(size), prompt, given_N), length)
    parts = [(piece.tokens.tolist(), piece.prompt) for piece in pieces]
    case = f"{size} tokens with a prompt of {prompt}, in pieces of {length}: {parts}"
    lengths = [len(tokens) for tokens, _ in parts]
    assert lengths[:-1] == [length] * (len(parts) - 1) and lengths[-1] <= length, f"{case}: a piece is not full"
    shared = all(before[-1] == after[0] for (before, _), (after, _) in pairwise(parts))
    assert shared, f"{case}: a piece does not start with the last token of the previous one"
    tokens = parts[0][0][:1] + [token for tokens, _ in parts for token in tokens[1:]]
    assert_equal(f"{case}: tokens, once each", tokens, list(range(size)))
    prompts = {token for tokens, prompt in parts for token in tokens[:prompt]}
    assert_equal(f"{case}: tokens of the prompts", prompts, set(range(prompt)))
    assert all(0 <= prompt <= len(tokens) for tokens, prompt in parts), f"{case}: a prompt is longer than its piece"
    masks_seen = [None if piece.given is None else piece.given.tolist() for piece in pieces]
    expected = [None if given_N is None else given_N[piece.tokens].tolist() for piece in pieces]
    assert_equal(f"{case}: masks of the pieces", masks_seen, expected)


INVALID = [
    ("a list of tokens", lambda: ([1, 2],), ("tokens of a document", "list")),
    ("tokens that are floats", lambda: (torch.zeros(2),), ("tokens of a document", "float32")),
    ("a batch of tokens", lambda: (torch.zeros(1, 2, dtype=torch.int64),), ("tokens of a document", "[1, 2]")),
    ("a prompt longer than the document", lambda: (torch.arange(2), 3), ("prompt of 3", "document of 2")),
    ("a negative prompt", lambda: (torch.arange(2), -1), ("prompt of -1", "document of 2")),
    ("a mask of numbers", lambda: (torch.arange(2), 0, torch.ones(2)), ("mask of a document of 2", "float32 [2]")),
    ("a mask of one item", lambda: (torch.arange(2), 0, torch.ones(1) > 0), ("mask of a document of 2", "bool [1]")),
]


def falsify_invalid_documents_are_refused(subject: Any) -> None:
    for case, arguments, words in INVALID:
        assert_refused(case, lambda arguments=arguments: subject.Document(*arguments()), *words)
    for dtype in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
        tokens = subject.pad_documents([subject.Document(torch.tensor([1, 2], dtype=dtype))], padding_id=0).tokens
        assert_equal(f"the row of a document of {dtype}", tokens.tolist(), [[1, 2]])


Row = tuple[Tensor, Tensor | None, int | None, Tensor | None]
INTEGERS = st.sampled_from([torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8])


@st.composite
def rows(draw: st.DrawFn) -> Row:
    """Draw tokens [B, T], and segments, a padding id and prompts, which may be None."""
    B, T = draw(st.integers(0, 2)), draw(st.integers(0, 6))

    def drawn(largest: int) -> Tensor:
        values = draw(st.lists(st.integers(0, largest), min_size=B * T, max_size=B * T))
        return torch.tensor(values, dtype=torch.int64).reshape(B, T)

    tokens = drawn(3).to(draw(INTEGERS))
    segments = drawn(2).to(draw(INTEGERS)) if draw(st.booleans()) else None
    padding_id = draw(st.none() | st.integers(0, 3))
    return tokens, segments, padding_id, drawn(1).bool() if draw(st.booleans()) else None


def _predicted(row: Row, b: int, i: int) -> bool:
    """Return whether tokens[b, i] is predicted, from the rule."""
    tokens, segments, padding_id, prompts = row
    if i == 0 or (prompts is not None and bool(prompts[b, i])):
        return False
    if segments is not None:
        return int(segments[b, i]) != 0 and int(segments[b, i]) == int(segments[b, i - 1])
    return padding_id is None or (int(tokens[b, i]) != padding_id and int(tokens[b, i - 1]) != padding_id)


@given(row=rows())
def falsify_labels_follow_the_rule(subject: Any, device: str, row: Row) -> None:
    tokens, segments, padding_id, prompts = row
    on_device = [None if tensor is None else tensor.to(device) for tensor in (tokens.clone(), segments, prompts)]
    labels = subject.create_labels(*on_device[:2], padding_id=padding_id, prompts=on_device[2])
    B, T = tokens.shape
    expected = [[int(tokens[b, i]) if _predicted(row, b, i) else -100 for i in range(T)] for b in range(B)]
    assert_equal("dtype and device of labels", (labels.dtype, labels.device.type), (torch.int64, device))
    assert_equal(f"labels of {row}", labels.tolist(), expected)
    assert_equal("tokens after the call", on_device[0].tolist(), tokens.tolist())


def falsify_other_shapes_are_refused(subject: Any) -> None:
    tokens = torch.tensor([[1, 2, 3], [1, 2, 3]])
    for name in ("segments", "prompts"):
        for shape in ((1, 3), (3,), (2, 2)):
            other = torch.ones(shape, dtype=torch.bool)
            call = partial(subject.create_labels, tokens, **{name: other})
            assert_refused(f"{name} of shape {list(shape)}", call, name, "[2, 3]", str(list(shape)))


TOKENS = torch.tensor([[1, 2, 0], [2, 0, 1]])
SEGMENTS = torch.tensor([[1, 1, 2], [1, 2, 0]])


class Recording(nn.Module):
    """A module that records what it is called with. Its parameter is on the `meta` device, which every machine has."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(1, device="meta"))
        self.calls: list[tuple[Any, ...]] = []

    def answer(self, tokens: Tensor, *rest: Any) -> Tensor:
        self.calls.append((tokens, *rest))
        return torch.zeros(*tokens.shape, 3)


class Taking(Recording):
    def forward(self, tokens: Tensor, segments: Tensor | None = None) -> Tensor:
        return self.answer(tokens, segments)


class TokensOnly(Recording):
    def forward(self, tokens: Tensor) -> Tensor:
        return self.answer(tokens)


class Anything(Recording):
    """As models of Hugging Face, whose forward takes any keyword and ignores most."""

    def forward(self, tokens: Tensor, **named: Any) -> Tensor:
        return self.answer(tokens, named)


ASKED: list[tuple[str, Callable[[Any, nn.Module, Any], Any]]] = [
    ("teacher", lambda subject, module, batch: subject.ModuleTeacher(module, 3).logits(batch)),
    ("student", lambda subject, module, batch: subject.ModuleStudent(module, 3).forward(batch)),
]


def falsify_modules_get_the_segments(subject: Any) -> None:
    batch = subject.Batch(tokens=TOKENS, labels=TOKENS, segments=SEGMENTS.int())
    for name, ask in ASKED:
        module = Taking()
        ask(subject, module, batch)
        devices = [argument.device.type for argument in module.calls[0] if isinstance(argument, Tensor)]
        assert_equal(f"devices of tokens and segments for the {name}'s module on meta", devices, ["meta", "meta"])
        assert_equal(f"dtype of the segments of the {name}", module.calls[0][1].dtype, torch.int32)
        for plain in (Taking(), TokensOnly(), Anything()):
            ask(subject, plain, subject.Batch(tokens=TOKENS, labels=TOKENS))
            rest = plain.calls[0][1:]
            assert rest in ((), (None,), ({},)), f"without segments, the {name}'s module got {rest} beside the tokens"


def falsify_packed_batches_need_a_module_that_takes_segments(subject: Any) -> None:
    batch = subject.Batch(tokens=TOKENS, labels=TOKENS, segments=SEGMENTS)
    for name, ask in ASKED:
        for module in (TokensOnly(), Anything()):
            message = f"the {name}'s module has no parameter 'segments'"
            assert_refused(message, partial(ask, subject, module, batch), message)
            assert not module.calls, f"the {name}'s module was called with {module.calls} before the refusal"
