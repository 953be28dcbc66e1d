"""Attacks on the sequences of a text, its documents, and the order in which a run reads them."""

import hashlib
import math
import os
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
from hypothesis import assume, example, given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from falsifiers.support.assertions import assert_equal, refusal
from falsifiers.support.fake_cuda import CUDA, fake_cuda
from falsifiers.support.oracles import assert_refused
from falsifiers.support.runs import epoch, file_of, run, scratch, sequences_of, small
from reference_trainer import DataError, Document, rows_of_documents
from reference_trainer.data import text as trainer_text
from reference_trainer.data.text import Sequences, epoch_order


@given(
    size=st.integers(2, 200),
    length=st.integers(2, 9),
    batch_size=st.integers(1, 6),
    seed=st.integers(0, 99),
    number=st.integers(1, 9),
    data=st.data(),
)
def falsify_every_byte_is_predicted_once(
    subject: Any, device: str, size: int, length: int, batch_size: int, seed: int, number: int, data: st.DataObject
) -> None:
    # No byte occurs twice in the text, so each byte identifies its offset.
    text = torch.randperm(256, generator=torch.Generator().manual_seed(seed))[: max(size, length)].to(torch.uint8)
    place = {int(byte): k for k, byte in enumerate(text.tolist())}
    sequences = sequences_of(subject, text, length, batch_size, device)
    order = subject.epoch_order(seed, number, len(sequences))
    positions = data.draw(st.permutations(range(1, sequences.batches + 1)), label="order of requests")
    batches = [batch for _, batch in sorted((position, sequences.batch(order, position)) for position in positions)]
    for position, batch in enumerate(batches, 1):
        kinds = [(tensor.dtype, tensor.device.type) for tensor in (batch.tokens, batch.labels)]
        assert kinds == [(torch.int64, device)] * 2, f"batch {position} is {kinds}; expected int64 on {device}"
        assert torch.equal(batch.tokens, batch.labels), f"batch {position}: tokens and labels differ"
    rows = [[place[byte] for byte in row] for batch in batches for row in batch.tokens.tolist()]
    apart = [row for row in rows if row != list(range(row[0], row[0] + length))]
    assert not apart, f"sequences of {length} hold the bytes at {apart}"
    count = (len(text) - 1) // (length - 1)
    predicted, expected = sorted(k for row in rows for k in row[1:]), list(range(1, count * (length - 1) + 1))
    assert predicted == expected, f"{count} sequences of {length} do not predict each byte but the first once: {rows}"
    sizes = [len(batch.tokens) for batch in batches]
    expected = [min(batch_size, count - k) for k in range(0, count, batch_size)]
    assert sizes == expected, f"batches of {count} sequences hold {sizes}; expected {expected}"


@given(
    size=st.integers(41, 400),
    length=st.integers(2, 5),
    seed=st.integers(0, 9),
    share=st.sampled_from([0.125, 0.5, 1.0]),
    surplus=st.integers(-1, 1),
)
def falsify_held_back_bytes_are_never_trained_on(
    subject: Any, size: int, length: int, seed: int, share: float, surplus: int
) -> None:
    cut = size - -(-size // 10)
    content = bytes([*(k % 128 for k in range(cut)), *(128 + k % 128 for k in range(size - cut))])
    with file_of(content) as path:
        text = subject.read_text(path, length)
        for number in (1, 2):
            for batch in epoch(subject, sequences_of(subject, text.training, length), seed, number):
                assert int(batch.tokens.max()) < 128, f"held-back bytes in a training batch: {batch.tokens.tolist()}"
        for batch in epoch(subject, sequences_of(subject, text.held_back, length), seed):
            assert int(batch.tokens.min()) >= 128, f"trained bytes in a held-back batch: {batch.tokens.tolist()}"
        parts = bytes(text.training.tolist()) + bytes(text.held_back.tolist())
    assert parts == content, f"the parts hold {len(parts)} bytes and differ from the text of {size}"
    kept = int(cut * share)
    chosen = kept if surplus <= 0 else 0  # bytes of a share that is long enough for a sequence
    call = partial(subject.share_of, text, share, kept + surplus)
    assert_equal(f"bytes of {share} of {cut}, refused", 0 if refusal(call, DataError) else len(call()), chosen)


LENGTH, IGNORED = 4, -100


@given(
    count=st.integers(1, 60),
    batch_size=st.integers(1, 5),
    world_size=st.integers(1, 4),
    seed=st.integers(0, 9),
    epoch=st.integers(1, 5),
)
def falsify_each_sequence_is_dealt_to_one_rank(
    subject: Any, count: int, batch_size: int, world_size: int, seed: int, epoch: int
) -> None:
    # No byte occurs twice in the text, so the first byte of a sequence identifies it.
    text = torch.arange(count * (LENGTH - 1) + 1, dtype=torch.uint8)
    sequences = Sequences(bytes_N=text, length=LENGTH, batch_size=batch_size, device=torch.device("cpu"), first=7)
    options = {"sequences": sequences, "seed": seed, "world_size": world_size}
    ranks = [subject.ShuffledBatches(rank=rank, **options) for rank in range(world_size)]
    rounds = {batches.batches for batches in ranks}
    expected = math.ceil(math.ceil(count / batch_size) / world_size)
    assert rounds == {expected}, f"ranks have {rounds} batches of an epoch; expected {expected} each"
    dealt = [batches.batch(epoch, k) for k in range(1, expected + 1) for batches in ranks]
    busy = [batch for batch in dealt if (batch.labels != IGNORED).any()]
    scored = [first // (LENGTH - 1) for batch in busy for first in batch.tokens[:, 0].tolist()]
    order = epoch_order(seed, epoch, count).tolist()
    assert scored == order, f"{world_size} ranks read the sequences {scored}; expected {order}"
    numbers = [number for batch in busy for number in batch.examples.tolist()]
    assert_equal("numbers of examples, from 7", numbers, [7 + number for number in order])
    idle = [len(batch.tokens) for batch in dealt if not (batch.labels != IGNORED).any()]
    assert set(idle) <= {1}, "a rank without a batch left computes more than one sequence"


def _least_padded(lengths: list[int], batch_size: int) -> int:
    """Return the fewest positions of batches of these rows: sorted, with the smaller batch at its best place."""
    ordered = sorted(lengths, reverse=True)
    smaller = len(ordered) % batch_size
    totals = []
    for place in range(len(ordered) // batch_size + 1 if smaller else 1):
        sizes = [batch_size] * (len(ordered) // batch_size)
        sizes[place:place] = [smaller] if smaller else []
        starts = [sum(sizes[:number]) for number in range(len(sizes))]
        totals.append(sum(size * ordered[start] for size, start in zip(sizes, starts, strict=True)))
    return min(totals)


@given(
    lengths=st.one_of(
        st.lists(st.integers(2, 9), min_size=1, max_size=30), st.just([2, 9, 3, 8, 4, 7, 5, 6, 2] * 14 + [3])
    ),
    batch_size=st.integers(1, 5),
    world_size=st.integers(1, 4),
    seed=st.integers(0, 9),
    epoch=st.integers(1, 5),
)
@example(lengths=[10, 2, 2], batch_size=2, world_size=1, seed=0, epoch=1)
def falsify_batches_of_similar_lengths(
    subject: Any, lengths: list[int], batch_size: int, world_size: int, seed: int, epoch: int
) -> None:
    documents = [Document(torch.full((length,), number)) for number, length in enumerate(lengths)]
    options = {"pack": False, "length": 10, "batch_size": batch_size, "device": torch.device("cpu")}
    rows = rows_of_documents(documents, **options)

    def dealt(groups: Any) -> list[Any]:
        """Return the batches of all ranks, in the order of the epoch."""
        shared = {"sequences": rows, "seed": seed, "world_size": world_size, "order": groups}
        ranks = [subject.ShuffledBatches(rank=rank, **shared) for rank in range(world_size)]
        assert len({batches.batches for batches in ranks}) == 1, "ranks have different numbers of batches"
        return [batches.batch(epoch, k + 1) for k in range(ranks[0].batches) for batches in ranks]

    grouped, plain = (dealt(groups) for groups in (rows.length_groups(), None))
    busy = [batch for batch in grouped if (batch.labels != IGNORED).any()]
    read = [row for batch in busy for row in batch.tokens[:, 0].tolist()]
    case = f"rows of lengths {lengths} in batches of {batch_size}"
    assert sorted(read) == list(range(len(lengths))), f"{case}: an epoch has the rows {read}"
    sizes = [[len(batch.tokens) for batch in batches] for batches in (grouped, plain)]
    assert sizes[0] == sizes[1], f"{case}: the batches have {sizes[0]} rows, and batches of any lengths {sizes[1]}"
    shown, before = (sum(b.tokens.numel() for b in part if (b.labels != IGNORED).any()) for part in (grouped, plain))
    assert shown <= before, f"{case}: {shown} positions, and {before} in batches of any lengths"
    order, window = epoch_order(seed, epoch, len(lengths)).tolist(), 50 * batch_size
    parts = [[lengths[row] for row in order[begin : begin + window]] for begin in range(0, len(order), window)]
    least = sum(_least_padded(part, batch_size) for part in parts)
    assert shown == least, f"{case}: {shown} positions, {least} are enough for windows of 50 batches"
    again = [batch.tokens.tolist() for batch in dealt(rows.length_groups())]
    assert again == [batch.tokens.tolist() for batch in grouped], f"{case}: another reading has other batches"


def falsify_epochs_have_other_orders_of_lengths(subject: Any) -> None:
    """Rows of 49 lengths are one window, so seed and epoch decide about the order of its seven runs alone."""
    groups = subject.LengthGroups(lengths=torch.arange(49), batch_size=1)
    orders = {(seed, epoch): groups.order(seed, epoch).tolist() for seed in range(2) for epoch in range(1, 4)}
    runs = [list(range(first, max(first - 8, -1), -1)) for first in range(48, -1, -8)]
    for name, order in orders.items():
        starts = [order.index(run[0]) for run in runs]
        apart = [run for run, at in zip(runs, starts, strict=True) if order[at : at + len(run)] != run]
        assert not apart, f"(seed, epoch) {name}: these 8 similar lengths do not follow each other: {apart} in {order}"
    for one, other in combinations(orders, 2):
        assert orders[one] != orders[other], f"(seed, epoch) {one} and {other} have the same order: {orders[one]}"


@given(content=st.binary(min_size=11, max_size=300))
def falsify_tokens_are_the_bytes(subject: Any, content: bytes) -> None:
    length = 2
    with file_of(content) as path:
        text = subject.read_text(path, length)
        read = [*text.training.tolist(), *text.held_back.tolist()]
        sequences = sequences_of(subject, text.training, length)
        tokens = {int(x) for batch in epoch(subject, sequences) for x in batch.tokens.flatten()}
    assert read == list(content), f"read {read} from a file of {list(content)}"
    assert tokens == set(content[: len(text.training)]), f"tokens {sorted(tokens)} of the bytes {sorted(set(content))}"
    expected = hashlib.sha256(content).hexdigest()
    assert text.digest == expected, f"the digest is {text.digest}, SHA-256 of the file is {expected}"
    assert text.name == str(path), f"the text is called {text.name!r}, expected the text {str(path)!r}"


def falsify_packaged_text_is_the_default(subject: Any) -> None:
    text, content = subject.read_text(None, 64), subject.packaged_text()
    assert bytes(text.training.tolist()) + bytes(text.held_back.tolist()) == content, "another text"
    assert text.digest == hashlib.sha256(content).hexdigest(), f"the digest {text.digest} is of something else"
    assert content.count(b" the ") > 2000, "the packaged text is not English"


@given(length=st.integers(2, 300) | st.integers(300, 10**5))
def falsify_minimum_size_is_the_minimum(subject: Any, length: int) -> None:
    fewest = 10 * (length - 1) + 1
    with file_of(b"") as path:
        os.truncate(path, fewest - 1)
        assert_refused(f"{fewest - 1} bytes, sequences of {length}", lambda: subject.read_text(path, length))
        os.truncate(path, fewest)
        text = subject.read_text(path, length)
    counts = [len(sequences_of(subject, part, length)) for part in (text.training, text.held_back)]
    assert min(counts) >= 1, f"of {fewest} bytes, the parts have {counts} sequences of {length}"


UNREADABLE: dict[str, Callable[[Path], Path]] = {
    "a directory": lambda path: path.parent,
    "nothing": lambda path: path / "missing",
    "a device": lambda path: Path("/dev/zero"),
    "an unreadable file": lambda path: Path("/proc/self/mem"),
}


@given(kind=st.sampled_from(list(UNREADABLE)))
def falsify_unreadable_files_are_refused(subject: Any, kind: str) -> None:
    with file_of(b"") as empty:
        for label, path in (("an empty file", empty), (kind, UNREADABLE[kind](empty))):
            assert_refused(label, lambda path=path: subject.read_text(path, 8))


TEXTS = st.text(alphabet="ab|", min_size=1, max_size=60)
SEPARATORS = st.sampled_from(["|", "||", "a|", "é"])


def _bytes(text: str) -> Tensor:
    return torch.tensor(list(text.encode()), dtype=torch.uint8)


def _documents(text: bytes, separator: bytes) -> list[bytes]:
    """Return the documents: each ends with its separator, the last one may have none."""
    *complete, rest = text.split(separator)
    return [document for document in (*(part + separator for part in complete), rest) if document]


def _predicted(text: str, separator: str, length: int) -> Counter[tuple[bytes, int]]:
    """Return each byte that is predicted, with the bytes before it in its piece."""
    predicted: Counter[tuple[bytes, int]] = Counter()
    for document in _documents(text.encode(), separator.encode()):
        for place in range(1, len(document)):
            first = (place - 1) // (length - 1) * (length - 1)
            predicted[document[first:place], document[place]] += 1
    return predicted


def _seen(batch: Any) -> Counter[tuple[bytes, int]]:
    """Return each label of a batch, with the tokens that its model sees before it."""
    predicted: Counter[tuple[bytes, int]] = Counter()
    segments = torch.ones_like(batch.tokens) if batch.segments is None else batch.segments
    for tokens, labels, row in zip(batch.tokens.tolist(), batch.labels.tolist(), segments.tolist(), strict=True):
        for place, label in enumerate(labels):
            if label != IGNORED and place:
                visible = [tokens[k] for k in range(place) if row[k] == row[place - 1]]
                predicted[bytes(visible), label] += 1
    return predicted


@given(
    text=TEXTS,
    separator=SEPARATORS,
    pack=st.booleans(),
    length=st.integers(2, 9),
    batch_size=st.integers(1, 4),
    seed=st.integers(0, 9),
)
@example(text="ab|" * 1000 + "b|" * 9, separator="|", pack=True, length=9, batch_size=4, seed=0)  # two groups of rows
def falsify_each_byte_is_predicted_once_from_its_document(
    subject: Any, device: str, text: str, separator: str, pack: bool, length: int, batch_size: int, seed: int
) -> None:
    expected = _predicted(text, separator, length)
    assume(expected)
    shape = {"length": length, "batch_size": batch_size, "device": torch.device(device)}
    rows = subject.document_rows(_bytes(text), separator, pack=pack, **shape)
    batches = epoch(trainer_text, rows, seed)
    seen = sum((_seen(batch) for batch in batches), Counter[tuple[bytes, int]]())
    lacks, excess = expected - seen, seen - expected
    case = f"{text[:60]!r} by {separator!r}, {pack}"
    assert not lacks and not excess, f"{case}: lacks {dict(lacks)}, has besides {dict(excess)}"
    widths = {batch.tokens.shape[1] for batch in batches}
    assert max(widths) <= length and (not pack or widths == {length}), f"rows of {length} have the widths {widths}"
    assert all((batch.segments is None) == (not pack) for batch in batches), "segments are for packed rows alone"
    sizes = [len(batch.tokens) for batch in batches]
    assert len(sizes) == rows.batches == -(-len(rows) // batch_size) and sum(sizes) == len(rows), f"batches of {sizes}"


@given(text=TEXTS, pack=st.booleans())
def falsify_batches_are_on_the_device_of_the_run(subject: Any, text: str, pack: bool) -> None:
    assume(_predicted(text, "|", 6))
    with fake_cuda():
        rows = subject.document_rows(_bytes(text), "|", pack=pack, length=6, batch_size=2, device=CUDA)
        batch = rows.batch(torch.arange(len(rows)), 1)
        parts = [batch.tokens, batch.labels, *([] if batch.segments is None else [batch.segments])]
        assert {part.device.type for part in parts} == {"cuda"}, f"packed {pack}: {[part.device for part in parts]}"


@given(text=st.text(alphabet="|", max_size=9), pack=st.booleans())
def falsify_a_text_without_documents_is_refused(subject: Any, text: str, pack: bool) -> None:
    shape = {"length": 6, "batch_size": 2, "device": torch.device("cpu")}
    call = partial(subject.document_rows, _bytes(text), "|", pack=pack, **shape)
    assert_refused(repr(text), call, "separator", "'|'")


ROW_LENGTH, COUNT = 8, 12
"""Of 90 bytes to learn from: a byte of context, and 7 more in each sequence of length 8."""


class ReadSequences:
    """The sequences that a module reads in train mode, observed by torch's own hook."""

    def __init__(self) -> None:
        self.starts: list[tuple[nn.Module, list[int]]] = []

    def note(self, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        if module.training and arguments and arguments[0].dtype == torch.int64 and arguments[0].dim() == 2:
            self.starts.append((module, [row[0] // (ROW_LENGTH - 1) for row in arguments[0].tolist()]))

    def of(self, module: nn.Module) -> list[int]:
        """Return the sequences that `module` read; each byte of the text is its own offset."""
        return [sequence for reader, batch in self.starts if reader is module for sequence in batch]


@given(seed=st.integers(0, 9), epochs=st.integers(2, 3), batch_size=st.sampled_from([4, 5, 12]))
def falsify_student_reads_in_order_of_seed_and_epoch(subject: Any, seed: int, epochs: int, batch_size: int) -> None:
    read = ReadSequences()
    changes = {"length": ROW_LENGTH, "seed": seed, "epochs": epochs, "batch_size": batch_size}
    with register_module_forward_pre_hook(read.note), scratch() as directory:
        student = run(subject, small(directory, out=directory / "out", **changes)).student
    seen = read.of(student)
    assert len(seen) == epochs * COUNT, f"a student read {len(seen)} sequences in {epochs} epochs of {COUNT}"
    for number in range(1, epochs + 1):
        # As torch draws it by the first seven bytes of `printf SEED/EPOCH | sha256sum`.
        drawn_by = int(hashlib.sha256(b"%d/%d" % (seed, number)).hexdigest()[:14], 16)
        expected = torch.randperm(COUNT, generator=torch.Generator().manual_seed(drawn_by)).tolist()
        order = seen[(number - 1) * COUNT : number * COUNT]
        assert order == expected, f"epoch {number} of seed {seed} has the order {order}; expected {expected}"
