"""Attacks on tokens that are made piece by piece or in several processes, on several files, and on rows left out."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow
from hypothesis import example, given
from hypothesis import strategies as st
from pyarrow import parquet

from falsifiers.chats.falsify_data import INVALID
from falsifiers.chats.falsify_turns import accepted
from falsifiers.chats.tokenizer import END, Messages, Tokenizer, conversations, letters
from falsifiers.support.assertions import assert_equal, refusal
from falsifiers.support.runs import scratch
from reference_trainer import DataError

WORDS = "a ab abc b ba cab a b\na\n\nb \n c"
ADDED = {
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


@given(prefix=TEXTS, rest=TEXTS, added=st.sampled_from(list(ADDED)), kind=st.sampled_from(["bytes", "first", "always"]))
@example(prefix="a<x>", rest="b<y> a", added="plain", kind="first")
@example(prefix="<y> ", rest="<x>", added="spaces to the left", kind="bytes")
@example(prefix="<y>ab", rest="<y>", added="words", kind="bytes")
def falsify_tokens_of_pieces(subject: Any, prefix: str, rest: str, added: str, kind: str) -> None:
    """Of a text and its prefix, after the comparisons of first texts."""
    tokenizer = fast_tokenizer(added, kind)
    pieces = subject.Pieces(tokenizer)
    for _ in range(subject.COMPARED):
        pieces.tokens("", list)
    for text in (prefix, prefix + rest, prefix):
        whole = list(tokenizer(text, add_special_tokens=False)["input_ids"])
        assert_equal(
            f"tokens of {text!r}, cut: {pieces.can_split}", pieces.tokens(text, lambda whole=whole: whole), whole
        )
    assert pieces.can_split == (added in ("plain", "spaces to the right", "normalized")), f"{added}: {pieces.can_split}"
    other = [-1]
    if added == "plain":
        assert_equal(
            "tokens that differ from those of the pieces", subject.Pieces(tokenizer).tokens("a", lambda: other), other
        )


def _write(folder: Path, lines: list[str], files: int) -> None:
    """Write rows into files in the order of their names."""
    size = -(-len(lines) // files)
    for number in range(files):
        part = lines[number * size : (number + 1) * size]
        (folder / f"{number}.jsonl").write_text("".join(line + "\n" for line in part))


def _stored(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def _chats(*answers: str) -> Messages:
    return [m for a in answers for m in ({"role": "user", "content": "b"}, {"role": "assistant", "content": a})]


@given(
    chats=st.lists(conversations(), min_size=1, max_size=4),
    bad=st.lists(st.tuples(st.integers(0, 9), st.sampled_from([text for text, _ in INVALID])), max_size=7),
    files=st.integers(1, 3),
    workers=st.integers(1, 2),
    times=st.sampled_from([1, 1, 90]),
    turns=st.sampled_from(["every", "last"]),
)
@example(chats=[_chats("a")], bad=[(0, "[1]")], files=2, workers=2, times=1, turns="every")
@example(
    chats=[_chats("a"), _chats(*"aa"), _chats(*"aba")],
    bad=[(9, '{"text": 3}')],
    files=2,
    workers=2,
    times=90,
    turns="last",
)
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
            made = write(folder / f"b{number}", valid, files, workers=count)
            assert_equal(f"files of {len(valid)} rows in {files} files with {count} workers", made, expected)
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
                assert_equal("notes", subject.read_chats(folder / f"d{number}" / "made").notes, [note, *notes])


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
    ".": ["c.jsonl", "a.jsonl", "b.parquet"],
    "[a-z].*": ["c.jsonl", "a.jsonl", "b.parquet"],
}
"""Files in the order in which they are written, by the path that names them; they are read in the order of names."""
NOTHING: dict[str, Any] = {"text": None, "prompt": None, "completion": None, "messages": None}


def _row(number: int) -> tuple[dict[str, Any], list[int]]:
    """Return a row in one of three forms, with null values for other keys as tables have them, and its tokens."""
    text, kind = str(number), number % 3
    if kind == 0:
        return NOTHING | {"text": text}, [*letters(text), END]
    if kind == 1:
        return NOTHING | {"prompt": text, "completion": "b"}, [*letters(text + "b"), END]
    empty = {"name": None, "reasoning_content": None, "weight": None}
    messages = [{"role": "user", "content": text, **empty}, {"role": "assistant", "content": "b", **empty}]
    return NOTHING | {"messages": messages}, letters(f"U{text}.Ab.")


@given(path=st.sampled_from(list(FILES)), rows=st.integers(3, 9) | st.integers(999, 1100), bad=st.integers(0, 9))
@example(path="a.parquet", rows=1001, bad=9)
@example(path="saved", rows=1001, bad=9)
def falsify_rows_are_those_of_their_files(subject: Any, path: str, rows: int, bad: int) -> None:
    """In the order of the files, whatever their form; an invalid row is named by its place."""
    made, at = [_row(number) for number in range(rows)], rows - 1 - bad % rows
    names = sorted(FILES[path])
    bounds = [rows * n // len(names) for n in range(len(names) + 1)]
    writer = subject.ChatWriter(Tokenizer(reads=("name", "reasoning_content")))
    with scratch() as folder:
        (folder / "valid").mkdir()
        (folder / "invalid").mkdir()
        places = dict[str, list[str]]()
        for name in FILES[path]:
            n = names.index(name)
            part = [row for row, _ in made[bounds[n] : bounds[n + 1]]]
            _put(folder / "valid" / name, part)
            places[name] = _put(
                folder / "invalid" / name, [NOTHING if bounds[n] + k == at else row for k, row in enumerate(part)]
            )
        valid, invalid = folder / "valid" / path, folder / "invalid" / path
        subject.write_chats(valid, writer, 99, folder)
        read = subject.read_chats(folder)
        assert_equal(f"rows of {path}", [d.tokens.tolist() for d in read.documents], [tokens for _, tokens in made])
        assert_equal("notes about null values", read.notes, [])
        message = refusal(lambda: subject.write_chats(invalid, writer, 99, folder), DataError)
        place = [place for name in names for place in places[name]][at]
        assert message.startswith(f"{place}: its keys are text (null)"), f"row {at} at {place}: {message or 'accepted'}"
        assert subject.digest_of(valid) != subject.digest_of(invalid), f"{path}: other rows have an equal digest"
        size = sum(
            file.stat().st_size
            for name in names
            for file in [folder / "valid" / name, *(folder / "valid" / name).glob("*")]
            if file.is_file()
        )
        assert_equal(f"bytes of {path}", subject.size_of(valid), size)
