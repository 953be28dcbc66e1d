"""Attacks on tokens that are made piece by piece or in several processes, on several files, and on rows left out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow
from hypothesis import example, given
from hypothesis import strategies as st
from pyarrow import parquet

from falsifiers.chats.falsify_data import INVALID
from falsifiers.chats.falsify_turns import CHAT, accepted
from falsifiers.chats.tokenizer import END, Messages, Tokenizer, conversations, letters
from falsifiers.support.assertions import assert_equal, refusal
from falsifiers.support.runs import scratch
from reference_trainer import DataError

WORDS = "a ab abc b ba cab a b\na\n\nb \n c"
ADDED: dict[str, list[tuple[str, dict[str, bool]]]] = {
    "plain": [("<x>", {}), ("<xx>", {}), ("<x><y>", {})],
    "spaces to the right": [("<x>", {"rstrip": True}), ("<y>", {})],
    "spaces to the left": [("<x>", {"lstrip": True}), ("<y>", {})],
    "words": [("ab", {"single_word": True}), ("<y>", {})],
    "normalized": [("<x>", {"normalized": True}), ("<y>", {})],
}


@lru_cache
def fast_tokenizer(added: str, kind: str) -> Any:
    """Return a small tokenizer of the tokenizers library."""
    import tokenizers
    import transformers

    model = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="?"))
    if kind == "bytes":
        model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=True)
    else:
        model.normalizer = tokenizers.normalizers.Replace("ab", "b")
        model.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(prepend_scheme=kind)
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=60, special_tokens=["?"], show_progress=False)
    model.train_from_iterator([WORDS] * 3, trainer)
    model.add_tokens([tokenizers.AddedToken(text, **{"normalized": False} | flags) for text, flags in ADDED[added]])
    return transformers.PreTrainedTokenizerFast(tokenizer_object=model)


TEXTS = st.lists(st.sampled_from(["a", "ab", "b", "c", " ", "\n", "<x>", "<xx>", "<y>", "<"]), max_size=9).map("".join)


@given(
    prefix=TEXTS,
    rest=TEXTS,
    added=st.sampled_from(list(ADDED)),
    kind=st.sampled_from(["bytes", "first", "always"]),
    splits=st.sampled_from([False, False, True]),
)
@example(prefix="a<x>", rest="b<y> a", added="plain", kind="first", splits=False)
@example(prefix="<y> ", rest="<x>", added="spaces to the left", kind="bytes", splits=False)
@example(prefix="<y>ab", rest="<y>", added="words", kind="bytes", splits=False)
def falsify_tokens_of_pieces(subject: Any, prefix: str, rest: str, added: str, kind: str, splits: bool) -> None:
    """Of a text and its prefix, after the comparisons of first texts."""
    tokenizer, texts = fast_tokenizer(added, kind), (prefix, prefix + rest, prefix)
    tokenizer.split_special_tokens = splits
    wholes = [list(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts]
    tokenizer.backend_tokenizer.enable_truncation(2)  # as files of tokenizers may have it
    tokenizer.backend_tokenizer.enable_padding(length=3)
    pieces = subject.Pieces(tokenizer)
    for _ in range(subject.COMPARED):
        pieces.tokens("", list)
    for text, whole in zip(texts, wholes, strict=True):
        assert_equal(
            f"tokens of {text!r}, cut: {pieces.can_split}", pieces.tokens(text, lambda whole=whole: whole), whole
        )
    can_split = added in ("plain", "spaces to the right", "normalized") and not splits
    assert_equal(f"{added}, special tokens are split {splits}: texts are cut", pieces.can_split, can_split)
    other = [-1]
    if can_split:
        assert_equal(
            "tokens that differ from the pieces' tokens", subject.Pieces(tokenizer).tokens("a", lambda: other), other
        )


@given(workers=st.integers(0, 2), count=st.integers(0, 20), bad=st.integers(0, 30))
@example(workers=2, count=20, bad=30)
def falsify_blocks_are_mapped_in_order(subject: Any, workers: int, count: int, bad: int) -> None:
    """A few blocks ahead, and up to the first one that is refused."""
    read, seen = [], list[int]()

    def blocks() -> Iterator[int]:
        for number in range(count):
            read.append(number)
            yield number

    def double(number: int) -> int:
        if number == bad:
            raise DataError(f"block {number}")
        return 2 * number

    def map_all() -> None:
        for result in subject.ordered_map(double, blocks(), workers):
            seen.append(result)
            most = len(seen) - 1 + max(subject.AHEAD * workers, 1)
            assert len(read) <= most, f"{len(read)} blocks are read when {len(seen)} are mapped by {workers} workers"

    assert_equal("the error", refusal(map_all, DataError), f"block {bad}" if bad < count else "")
    assert_equal("results", seen, [2 * number for number in range(min(bad, count))])


def _write(folder: Path, lines: list[str], files: int) -> None:
    """Write rows into files in the order of their names."""
    size = -(-len(lines) // files)
    for number in range(files):
        part = lines[number * size : (number + 1) * size]
        (folder / f"{number}.jsonl").write_text("".join(line + "\n" for line in part))


def _stored(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@given(
    chats=st.lists(conversations(), min_size=1, max_size=4),
    bad=st.lists(st.tuples(st.integers(0, 9), st.sampled_from([text for text, _ in INVALID])), max_size=7),
    files=st.integers(1, 3),
    workers=st.integers(1, 2),
    times=st.sampled_from([1, 1, 90]),
    turns=st.sampled_from(["every", "last"]),
)
@example(
    chats=[CHAT], bad=[(0, "[1]"), *[(0, '{"messages": 3, "lost": 1}')] * 4], files=2, workers=2, times=1, turns="every"
)
@example(chats=[CHAT, CHAT * 2, CHAT * 3], bad=[(9, '{"text": 3}')], files=2, workers=2, times=90, turns="last")
def falsify_rows_do_not_depend_on_workers_and_files(
    subject: Any,
    chats: list[Messages],
    bad: list[tuple[int, str]],
    files: int,
    workers: int,
    times: int,
    turns: str,
) -> None:
    """And invalid rows are refused, or left out and named. The template leaves out earlier answers."""
    template = Tokenizer(strips="assistant")
    # Equal rows follow each other, so that a block of rows begins with others than the one before.
    valid = [json.dumps({"messages": accepted(chat, template), "source": "a"}) for chat in chats for _ in range(times)]
    lines = list(valid)
    for at, text in bad:
        lines.insert(min(at, len(lines)), text)

    def write(place: Path, rows: list[str], files: int, **options: Any) -> dict[str, bytes]:
        (place / "data").mkdir(parents=True)
        (place / "made").mkdir()
        _write(place / "data", rows, files)
        subject.write_chats(place / "data", subject.ChatWriter(template, turns=turns), 99, place / "made", **options)
        return _stored(place / "made")

    with scratch() as folder:
        expected = write(folder / "a", valid, 1)
        notes = subject.read_chats(folder / "a" / "made").notes
        for number, count in enumerate((0, workers)):
            output = write(folder / f"b{number}", valid, files, workers=count)
            assert_equal(f"files of {len(valid)} rows in {files} files with {count} workers", output, expected)
            if bad:
                words = refusal(lambda n=number, c=count: write(folder / f"c{n}", lines, files, workers=c), DataError)
                size = -(-len(lines) // files)
                places = [f"{n // size}.jsonl:{n % size + 1}" for n, line in enumerate(lines) if line not in valid]
                assert f"data/{places[0]}: " in words, f"the first invalid row is {places[0]}: {words or 'accepted'}"
                reason = words.partition(f"{places[0]}: ")[2]
                left_out = write(folder / f"d{number}", lines, files, workers=count, skips_invalid=True)
                for name in ("tokens", "ends", "continues"):
                    assert_equal(f"{name} of the other rows", left_out[name], expected[name])
                shown = ", ".join(places[:5]) + (", ..." if len(bad) > 5 else "")
                note = f"{len(bad)} of {len(lines)} rows are invalid, and left out ({shown}); the first: {reason}"
                seen = subject.read_chats(folder / f"d{number}" / "made").notes
                assert_equal("the note about rows left out", seen[0], note)
                if len(lines) <= subject.BLOCK:  # fields are tried anew in each block
                    assert_equal("the other notes", seen[1:], notes)


def _put(file: Path, rows: list[dict[str, Any]]) -> list[str]:
    """Write rows into a file, or a saved dataset of two; return their places, as errors name them."""
    if file.suffix == ".jsonl":  # as another system writes it: a byte-order mark, its line ends, and blank lines
        text = "\ufeff" + "".join(json.dumps(row) + "\r\n \r\n" for row in rows)
        file.write_bytes(text.encode())
        return [f"{file}:{2 * n + 1}" for n in range(len(rows))]
    table, cut = pyarrow.Table.from_pylist(rows), len(rows) // 3
    if file.suffix == ".parquet":
        parquet.write_table(table, file)
    else:
        file.mkdir()
        for name, part in (("b", table[:cut]), ("a", table[cut:])):
            with pyarrow.OSFile(str(file / name), "wb") as sink, pyarrow.ipc.new_stream(sink, table.schema) as stream:
                stream.write_table(part, max_chunksize=300)
        (file / "state.json").write_text(json.dumps({"_data_files": [{"filename": "b"}, {"filename": "a"}]}))
    return [f"{file}: row {n}" for n in range(1, len(rows) + 1)]


FILES = {
    "a.jsonl": ["a.jsonl"],
    "a.parquet": ["a.parquet"],
    "saved": ["saved"],
    ".": ["e.jsonl", "b.jsonl", "a.parquet", "d.jsonl", "c.jsonl"],
    "[a-z].*": ["e.jsonl", "b.jsonl", "a.parquet", "d.jsonl", "c.jsonl"],
}
"""Files in the order in which they are written, by the path that names them; they are read in the order of names."""
NOTHING: dict[str, Any] = {"text": None, "prompt": None, "completion": None, "messages": None}


def _row(number: int, begins: tuple[int, ...]) -> tuple[dict[str, Any], tuple[list[int], list[bool]]]:
    """Return a row in one of three forms, with null values for other keys as tables have them, and its document."""
    text, kind = str(number), number % 3
    empty = {"name": None, "reasoning_content": None, "weight": None}
    messages = [{"role": "user", "content": text, **empty}, {"role": "assistant", "content": "b", **empty}]
    form = ({"text": text}, {"prompt": text, "completion": "b"}, {"messages": messages})[kind]
    before, after = [("", text), (text, "b"), (f"U{text}.A", "b.")][kind]
    prompt, predicted = [*begins, *letters(before)], [*letters(after), *([END] if kind < 2 else [])]
    return NOTHING | form, ([*prompt, *predicted], [True] * len(prompt) + [False] * len(predicted))


@given(
    path=st.sampled_from(list(FILES)),
    rows=st.integers(5, 9) | st.integers(999, 1100),
    bad=st.integers(0, 9),
    begins=st.sampled_from([(), (2,)]),
    closes=st.booleans(),
)
@example(path="a.parquet", rows=1001, bad=9, begins=(), closes=False)
@example(path="saved", rows=1001, bad=9, begins=(), closes=False)
@example(path="[a-z].*", rows=6, bad=2, begins=(2,), closes=True)
def falsify_rows_are_those_of_their_files(
    subject: Any, path: str, rows: int, bad: int, begins: tuple[int, ...], closes: bool
) -> None:
    """In the order of the files, whatever their form; an invalid row is named by its place."""
    pairs, at = [_row(number, begins) for number in range(rows)], rows - 1 - bad % rows
    names = sorted(FILES[path])
    bounds = [rows * n // len(names) for n in range(len(names) + 1)]
    writer = subject.ChatWriter(Tokenizer(begins, closes=closes, reads=("name", "reasoning_content")))
    with scratch() as folder:
        (folder / "valid").mkdir()
        (folder / "invalid").mkdir()
        places = dict[str, list[str]]()
        for name in FILES[path]:
            n = names.index(name)
            part = [row for row, _ in pairs[bounds[n] : bounds[n + 1]]]
            _put(folder / "valid" / name, part)
            places[name] = _put(
                folder / "invalid" / name, [NOTHING if bounds[n] + k == at else row for k, row in enumerate(part)]
            )
        valid, invalid = folder / "valid" / path, folder / "invalid" / path
        subject.write_chats(valid, writer, 99, folder)
        read = subject.read_chats(folder)
        seen = [(document.tokens.tolist(), document.given.tolist()) for document in read.documents]
        assert_equal(f"tokens of {path}, and which are given", seen, [document for _, document in pairs])
        assert_equal("notes about null values", read.notes, [])
        message = refusal(lambda: subject.write_chats(invalid, writer, 99, folder), DataError)
        place = [place for name in names for place in places[name]][at]
        assert message.startswith(f"{place}: its keys are text (null)"), f"row {at} at {place}: {message or 'accepted'}"
        digests = {subject.digest_of(valid), subject.digest_of(invalid)}
        for one, other in pairwise(names):  # the rows of two files in another order
            contents = [(folder / "valid" / name).read_bytes() for name in (one, other)]
            (folder / "valid" / one).write_bytes(contents[1])
            (folder / "valid" / other).write_bytes(contents[0])
            digests.add(subject.digest_of(valid))
        assert_equal(f"digests of different files of {path}", len(digests), 1 + len(names))
