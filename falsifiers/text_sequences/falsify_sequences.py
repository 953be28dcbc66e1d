"""Attacks on the sequences and the documents of a text, the batches of ranks, and the order of an epoch."""

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
    offset = {int(byte): k for k, byte in enumerate(text.tolist())}
    sequences = sequences_of(subject, text, length, batch_size, device)
    order = subject.epoch_order(seed, number, len(sequences))
    positions = data.draw(st.permutations(range(1, sequences.batches + 1)), label="order of requests")
    batches = [batch for _, batch in sorted((position, sequences.batch(order, position)) for position in positions)]
    for position, batch in enumerate(batches, 1):
        kinds = [(tensor.dtype, tensor.device.type) for tensor in (batch.tokens, batch.labels)]
        assert kinds == [(torch.int64, device)] * 2, f"batch {position} is {kinds}; expected int64 on {device}"
        assert_equal(f"labels of batch {position}", batch.labels.tolist(), batch.tokens.tolist())
    rows = [[offset[byte] for byte in row] for batch in batches for row in batch.tokens.tolist()]
    wrong = [row for row in rows if row != list(range(row[0], row[0] + length))]
    assert not wrong, f"sequences have the bytes at the offsets {wrong}; expected {length} consecutive offsets each"
    count = (len(text) - 1) // (length - 1)
    predicted, expected = sorted(k for row in rows for k in row[1:]), list(range(1, count * (length - 1) + 1))
    assert_equal(f"offsets that {count} sequences of {length} predict", predicted, expected)
    sizes = [len(batch.tokens) for batch in batches]
    expected = [min(batch_size, count - k) for k in range(0, count, batch_size)]
    assert_equal(f"sizes of the batches of {count} sequences", sizes, expected)


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
    """Read a text whose training bytes are below 128, and whose held-back bytes, the last tenth, are not."""
    cut = size - -(-size // 10)
    content = bytes([*(k % 128 for k in range(cut)), *(128 + k % 128 for k in range(size - cut))])
    with file_of(content) as path:
        text = subject.read_text(path, length)
        for number in (1, 2):
            for batch in epoch(subject, sequences_of(subject, text.training, length), seed, number):
                assert int(batch.tokens.max()) < 128, (
                    f"a training batch is {batch.tokens.tolist()}; expected bytes < 128"
                )
        for batch in epoch(subject, sequences_of(subject, text.held_back, length), seed):
            assert int(batch.tokens.min()) >= 128, (
                f"a held-back batch is {batch.tokens.tolist()}; expected bytes >= 128"
            )
        parts = bytes(text.training.tolist()) + bytes(text.held_back.tolist())
    assert_equal("both parts of the text together", parts, content)
    share_size = int(cut * share)
    # A share that is shorter than a sequence is refused; that counts as 0 bytes here.
    call = partial(subject.share_of, text, share, share_size + surplus)
    case = f"bytes of a share of {share} of {cut} bytes, for sequences of {share_size + surplus}"
    assert_equal(case, 0 if refusal(call, DataError) else len(call()), share_size if surplus <= 0 else 0)


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
    expected = math.ceil(math.ceil(count / batch_size) / world_size)
    assert_equal("batches of an epoch, by rank", [batches.batches for batches in ranks], [expected] * world_size)
    dealt = [batches.batch(epoch, k) for k in range(1, expected + 1) for batches in ranks]
    scored_batches = [batch for batch in dealt if (batch.labels != IGNORED).any()]
    scored = [first // (LENGTH - 1) for batch in scored_batches for first in batch.tokens[:, 0].tolist()]
    order = epoch_order(seed, epoch, count).tolist()
    assert_equal(f"sequences that {world_size} ranks score", scored, order)
    numbers = [number for batch in scored_batches for number in batch.examples.tolist()]
    assert_equal("numbers of examples, from 7", numbers, [7 + number for number in order])
    # A rank without a batch in the last round computes one sequence without labels.
    fillers = [len(batch.tokens) for batch in dealt if not (batch.labels != IGNORED).any()]
    assert set(fillers) <= {1}, f"batches without labels have {fillers} sequences; expected 1 each"


def _fewest_positions(lengths: list[int], batch_size: int) -> int:
    """Return the smallest number of positions, padding included, that batches of rows of these lengths can have.

    Sorting the rows by length is optimal; all places of the smaller batch in that order are tried.
    """
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

    def batches_of_ranks(groups: Any) -> list[Any]:
        """Return the batches of all ranks, in the order of the epoch; groups: None for batches of any lengths."""
        shared = {"sequences": rows, "seed": seed, "world_size": world_size, "order": groups}
        ranks = [subject.ShuffledBatches(rank=rank, **shared) for rank in range(world_size)]
        assert_equal("different numbers of batches of ranks", len({batches.batches for batches in ranks}), 1)
        return [batches.batch(epoch, k + 1) for k in range(ranks[0].batches) for batches in ranks]

    grouped, plain = (batches_of_ranks(groups) for groups in (rows.length_groups(), None))
    scored = [batch for batch in grouped if (batch.labels != IGNORED).any()]
    read = [row for batch in scored for row in batch.tokens[:, 0].tolist()]
    case = f"rows of lengths {lengths} in batches of {batch_size}"
    assert_equal(f"{case}: rows of an epoch", sorted(read), list(range(len(lengths))))
    sizes = [[len(batch.tokens) for batch in batches] for batches in (grouped, plain)]
    assert_equal(f"{case}: sizes of the batches, compared with batches of any lengths", *sizes)
    positions, limit = (sum(b.tokens.numel() for b in part if (b.labels != IGNORED).any()) for part in (grouped, plain))
    assert positions <= limit, f"{case}: {positions} positions; batches of any lengths have {limit}"
    # Rows are sorted within windows of 50 batches of the shuffled epoch, so that epochs differ.
    order, window = epoch_order(seed, epoch, len(lengths)).tolist(), 50 * batch_size
    parts = [[lengths[row] for row in order[begin : begin + window]] for begin in range(0, len(order), window)]
    assert_equal(f"{case}: positions", positions, sum(_fewest_positions(part, batch_size) for part in parts))
    again = batches_of_ranks(rows.length_groups())
    first, second = ([batch.tokens.tolist() for batch in batches] for batches in (grouped, again))
    assert first == second, f"{case}: the epoch has the batches {second} when it is read again; expected {first}"


def falsify_epochs_have_other_orders_of_lengths(subject: Any) -> None:
    """Sort 49 rows of different lengths: one window, cut into seven runs of up to 8 rows that are put in any order."""
    groups = subject.LengthGroups(lengths=torch.arange(49), batch_size=1)
    orders = {(seed, epoch): groups.order(seed, epoch).tolist() for seed in range(2) for epoch in range(1, 4)}
    # From the longest row to the shortest; row k has length k.
    runs = [list(range(first, max(first - 8, -1), -1)) for first in range(48, -1, -8)]
    for name, order in orders.items():
        starts = [order.index(run[0]) for run in runs]
        missing = [run for run, at in zip(runs, starts, strict=True) if order[at : at + len(run)] != run]
        assert not missing, f"(seed, epoch) {name}: the order is {order}; expected it to contain the runs {missing}"
    for first, second in combinations(orders, 2):
        assert orders[first] != orders[second], f"(seed, epoch) {first} and {second} have one order: {orders[first]}"


@given(content=st.binary(min_size=11, max_size=300))
def falsify_tokens_are_the_bytes(subject: Any, content: bytes) -> None:
    length = 2
    with file_of(content) as path:
        text = subject.read_text(path, length)
        read = [*text.training.tolist(), *text.held_back.tolist()]
        sequences = sequences_of(subject, text.training, length)
        tokens = {int(x) for batch in epoch(subject, sequences) for x in batch.tokens.flatten()}
        text.training.fill_(1)
        assert_equal("bytes of the file after a write into the tensor", path.read_bytes(), content)
    assert_equal("bytes of the text", read, list(content))
    assert_equal("tokens", sorted(tokens), sorted(set(content[: len(text.training)])))
    assert_equal("digest", text.digest, hashlib.sha256(content).hexdigest())
    assert_equal("name of the text", text.name, str(path))


def falsify_packaged_text_is_the_default(subject: Any) -> None:
    text, content = subject.read_text(None, 64), subject.packaged_text()
    parts = bytes(text.training.tolist()) + bytes(text.held_back.tolist())
    assert parts == content, (
        f"the default text has {len(parts)} bytes; expected the {len(content)} bytes of the package"
    )
    assert_equal("digest of the default text", text.digest, hashlib.sha256(content).hexdigest())
    # English of half a million bytes has thousands of `the`.
    assert content.count(b" the ") > 2000, f"the packaged text has {content.count(b' the ')} ' the '; expected > 2000"


@given(length=st.integers(2, 300) | st.integers(300, 10**5))
def falsify_minimum_size_is_the_minimum(subject: Any, length: int) -> None:
    fewest = 10 * (length - 1) + 1
    with file_of(b"") as path:
        os.truncate(path, fewest - 1)
        assert_refused(f"{fewest - 1} bytes, sequences of {length}", lambda: subject.read_text(path, length))
        os.truncate(path, fewest)
        text = subject.read_text(path, length)
    counts = [len(sequences_of(subject, part, length)) for part in (text.training, text.held_back)]
    assert min(counts) >= 1, f"the parts of {fewest} bytes have {counts} sequences of {length}; expected >= 1"


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
    """Return the documents of a text: each but the last one ends with the separator."""
    *complete, last = text.split(separator)
    return [document for document in (*(part + separator for part in complete), last) if document]


def _predicted(text: str, separator: str, length: int) -> Counter[tuple[bytes, int]]:
    """Return each predicted byte of a text, with the bytes before it in its piece of a document."""
    predicted: Counter[tuple[bytes, int]] = Counter()
    for document in _documents(text.encode(), separator.encode()):
        for place in range(1, len(document)):
            # A piece has `length` bytes; the next one begins with its last byte.
            first = (place - 1) // (length - 1) * (length - 1)
            predicted[document[first:place], document[place]] += 1
    return predicted


def _predicted_in(batch: Any) -> Counter[tuple[bytes, int]]:
    """Return each label of a batch, with the earlier tokens of its segment, which the model may attend to."""
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
    actual = sum((_predicted_in(batch) for batch in batches), Counter[tuple[bytes, int]]())
    missing, surplus = expected - actual, actual - expected
    case = f"{text[:60]!r} by {separator!r}, {pack=}"
    assert not missing and not surplus, f"{case}: missing predictions {dict(missing)}, surplus ones {dict(surplus)}"
    widths = {batch.tokens.shape[1] for batch in batches}
    assert max(widths) <= length and (not pack or widths == {length}), f"{case}: rows of {length} have widths {widths}"
    assert_equal(f"{case}: whether batches have segments", {batch.segments is not None for batch in batches}, {pack})
    sizes, count = [len(batch.tokens) for batch in batches], -(-len(rows) // batch_size)
    assert_equal(
        f"{case}: batches, and rows in them", (rows.batches, len(sizes), sum(sizes)), (count, count, len(rows))
    )


@given(text=TEXTS, pack=st.booleans())
def falsify_batches_are_on_the_device_of_the_run(subject: Any, text: str, pack: bool) -> None:
    assume(_predicted(text, "|", 6))
    with fake_cuda():
        rows = subject.document_rows(_bytes(text), "|", pack=pack, length=6, batch_size=2, device=CUDA)
        batch = rows.batch(torch.arange(len(rows)), 1)
        parts = [batch.tokens, batch.labels, *([] if batch.segments is None else [batch.segments])]
        assert_equal(f"{pack=}: devices of a batch", [part.device.type for part in parts], ["cuda"] * len(parts))


@given(text=st.text(alphabet="|", max_size=9), pack=st.booleans())
def falsify_a_text_without_documents_is_refused(subject: Any, text: str, pack: bool) -> None:
    shape = {"length": 6, "batch_size": 2, "device": torch.device("cpu")}
    call = partial(subject.document_rows, _bytes(text), "|", pack=pack, **shape)
    assert_refused(repr(text), call, "separator", "'|'")


ROW_LENGTH, COUNT = 8, 12
"""The training part of the text of `small` has 90 bytes: a byte of context, and 7 more in each of 12 sequences."""


class ReadSequences:
    """A forward hook that records the sequences that modules read in train mode."""

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
    recorder = ReadSequences()
    changes = {"length": ROW_LENGTH, "seed": seed, "epochs": epochs, "batch_size": batch_size}
    with register_module_forward_pre_hook(recorder.note), scratch() as directory:
        student = run(subject, small(directory, out=directory / "out", **changes)).student
    expected = []
    for number in range(1, epochs + 1):
        # The seed of an epoch is the first seven bytes of `printf SEED/EPOCH | sha256sum`.
        epoch_seed = int(hashlib.sha256(b"%d/%d" % (seed, number)).hexdigest()[:14], 16)
        expected += torch.randperm(COUNT, generator=torch.Generator().manual_seed(epoch_seed)).tolist()
    assert_equal(f"sequences read in {epochs} epochs of {COUNT}, {seed=}", recorder.of(student), expected)
