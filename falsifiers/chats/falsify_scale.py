"""Attacks on tokenization in pieces and in worker processes, on data in several files, and on skipped invalid rows."""

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
    """Return a small tokenizer of the tokenizers library with the tokens `ADDED[added]`.

    kind: "bytes" for a byte-level one, otherwise the `prepend_scheme` of Metaspace.
    """
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
    """Tokenize a prefix, the whole text and the prefix again, after the first texts, which are compared anyway.

    splits: whether the tokenizer splits special tokens. The texts may be cut only if added tokens take no space to
    their left and are no single words.
    """
    tokenizer, texts = fast_tokenizer(added, kind), (prefix, prefix + rest, prefix)
    tokenizer.split_special_tokens = splits
    wholes = [list(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts]
    tokenizer.backend_tokenizer.enable_truncation(2)  # a tokenizer file may enable both
    tokenizer.backend_tokenizer.enable_padding(length=3)
    pieces = subject.Pieces(tokenizer)
    for _ in range(subject.COMPARED):
        pieces.tokens("", list)
    for text, whole in zip(texts, wholes, strict=True):
        actual = pieces.tokens(text, lambda whole=whole: whole)
        assert_equal(f"tokens of {text!r}, {pieces.can_split=}", actual, whole)
    can_split = added in ("plain", "spaces to the right", "normalized") and not splits
    assert_equal(f"{added}, {splits=}: can_split", pieces.can_split, can_split)
    # Tokens of a first text that differ from the tokens of its pieces: the tokens of the whole text count.
    if can_split:
        assert_equal("tokens of a first text", subject.Pieces(tokenizer).tokens("a", lambda: [-1]), [-1])


@given(workers=st.integers(0, 2), count=st.integers(0, 20), bad=st.integers(0, 30), unreadable=st.integers(0, 30))
@example(workers=2, count=20, bad=30, unreadable=30)
@example(workers=1, count=20, bad=30, unreadable=2)
def falsify_blocks_are_mapped_in_order(subject: Any, workers: int, count: int, bad: int, unreadable: int) -> None:
    """Map blocks; the function refuses the block `bad`, and reading the block `unreadable` raises an error.

    At most `AHEAD` blocks for each worker are read ahead.
    """
    read, results = list[int](), list[int]()

    def blocks() -> Iterator[int]:
        for number in range(count):
            if number == unreadable:
                raise DataError(f"unreadable block {number}")
            read.append(number)
            yield number

    def double(number: int) -> int:
        if number == bad:
            raise DataError(f"block {number}")
        return 2 * number

    def map_all() -> None:
        for result in subject.ordered_map(double, blocks(), workers):
            results.append(result)
            limit = len(results) - 1 + max(subject.AHEAD * workers, 1)
            case = f"{workers} workers read {len(read)} blocks until {len(results)} are mapped"
            assert len(read) <= limit, f"{case}; expected at most {limit}"

    # A block is read before it is mapped, and no block has the number `count`, so the later entry of equal keys counts.
    errors = {bad: f"block {bad}", unreadable: f"unreadable block {unreadable}", count: ""}
    first = min(errors)
    assert_equal("the error", refusal(map_all, DataError), errors[first])
    assert_equal("results", results, [2 * number for number in range(first)])


def _write(folder: Path, lines: list[str], files: int) -> None:
    """Write rows to `files` files, in the order of their names."""
    size = -(-len(lines) // files)
    for number in range(files):
        part = lines[number * size : (number + 1) * size]
        (folder / f"{number}.jsonl").write_text("".join(line + "\n" for line in part))


def _contents(folder: Path) -> dict[str, bytes]:
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
    """Write rows from several files with several workers, and compare with one file and no worker.

    bad: invalid rows, as (position, text). They are refused, or with `skips_invalid` left out and counted in a note.
    times: the number of copies of each row. The template leaves out earlier answers.
    """
    template = Tokenizer(strips="assistant")
    # Copies of a row follow each other, so that neighbouring blocks begin with different rows.
    valid = [json.dumps({"messages": accepted(chat, template), "source": "a"}) for chat in chats for _ in range(times)]
    lines = list(valid)
    for at, text in bad:
        lines.insert(min(at, len(lines)), text)

    def write(place: Path, rows: list[str], files: int, **options: Any) -> dict[str, bytes]:
        (place / "data").mkdir(parents=True)
        (place / "out").mkdir()
        _write(place / "data", rows, files)
        subject.write_chats(place / "data", subject.ChatWriter(template, turns=turns), 99, place / "out", **options)
        return _contents(place / "out")

    with scratch() as folder:
        expected = write(folder / "a", valid, 1)
        notes = subject.read_chats(folder / "a" / "out").notes
        for number, count in enumerate((0, workers)):
            output = write(folder / f"b{number}", valid, files, workers=count)
            assert_equal(f"files of {len(valid)} rows in {files} files with {count} workers", output, expected)
            if bad:
                error = refusal(lambda n=number, c=count: write(folder / f"c{n}", lines, files, workers=c), DataError)
                size = -(-len(lines) // files)
                places = [f"{n // size}.jsonl:{n % size + 1}" for n, line in enumerate(lines) if line not in valid]
                assert f"data/{places[0]}: " in error, f"the error is {error!r}; expected the invalid row {places[0]}"
                reason = error.partition(f"{places[0]}: ")[2]
                output = write(folder / f"d{number}", lines, files, workers=count, skips_invalid=True)
                for name in ("tokens", "ends", "continues"):
                    assert_equal(f"{name} of the valid rows", output[name], expected[name])
                shown = ", ".join(places[:5]) + (", ..." if len(bad) > 5 else "")
                note = f"{len(bad)} of {len(lines)} rows are invalid, and left out ({shown}); the first: {reason}"
                actual = subject.read_chats(folder / f"d{number}" / "out").notes
                assert_equal("the note about invalid rows", actual[0], note)
                if len(lines) <= subject.BLOCK:  # each block tries fields anew, so notes depend on the blocks
                    assert_equal("the other notes", actual[1:], notes)


def _write_rows(file: Path, rows: list[dict[str, Any]]) -> list[str]:
    """Write rows to a file by its suffix, or to a saved dataset of two files; return their places as in errors."""
    if file.suffix == ".jsonl":  # with a byte-order mark, CRLF line ends and blank lines, as on Windows
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
"""Files in the order in which they are written, by path or pattern; they must be read in the order of their names."""
NOTHING: dict[str, Any] = {"text": None, "prompt": None, "completion": None, "messages": None}


def _row(number: int, begins: tuple[int, ...]) -> tuple[dict[str, Any], tuple[list[int], list[bool]]]:
    """Return a row in one of three forms, and its expected document: tokens, and which of them are not predicted.

    The keys of the other forms are null, as in a table.
    """
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
    """Read rows from files of several formats; then replace one row, chosen by `bad`, by an invalid one.

    begins: tokens before each document. closes: an option of `Tokenizer`.
    """
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
            _write_rows(folder / "valid" / name, part)
            part = [NOTHING if bounds[n] + k == at else row for k, row in enumerate(part)]
            places[name] = _write_rows(folder / "invalid" / name, part)
        valid, invalid = folder / "valid" / path, folder / "invalid" / path
        subject.write_chats(valid, writer, 99, folder)
        read = subject.read_chats(folder)
        actual = [(document.tokens.tolist(), document.given.tolist()) for document in read.documents]
        assert_equal(f"(tokens, given) of the documents of {path}", actual, [document for _, document in pairs])
        assert_equal("notes about null values", read.notes, [])
        message = refusal(lambda: subject.write_chats(invalid, writer, 99, folder), DataError)
        place = [place for name in names for place in places[name]][at]
        words = f"{place}: its keys are text (null)"
        assert message.startswith(words), f"the error for row {at} is {message!r}; expected it to begin with {words!r}"
        digests = {subject.digest_of(valid), subject.digest_of(invalid)}
        for first, second in pairwise(names):  # exchange the contents of two files
            contents = [(folder / "valid" / name).read_bytes() for name in (first, second)]
            (folder / "valid" / first).write_bytes(contents[1])
            (folder / "valid" / second).write_bytes(contents[0])
            digests.add(subject.digest_of(valid))
        assert_equal(f"digests of different files of {path}", len(digests), 1 + len(names))
