"""Attacks on tokens that are made piece by piece or in several processes, on several files, and on rows left out."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from falsifiers.chats.falsify_data import INVALID
from falsifiers.chats.tokenizer import Messages, Tokenizer, conversations
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


_CHAT: Messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]


@given(
    chats=st.lists(conversations(), min_size=1, max_size=4),
    bad=st.lists(st.tuples(st.integers(0, 9), st.sampled_from([text for text, _ in INVALID])), max_size=3),
    files=st.integers(1, 3),
    workers=st.integers(1, 2),
    times=st.sampled_from([1, 1, 90]),
)
@example(
    chats=[[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]],
    bad=[(0, "[1]")],
    files=2,
    workers=2,
    times=1,
)
@example(chats=[_CHAT, _CHAT * 2, _CHAT * 3], bad=[(9, '{"text": 3}')], files=2, workers=2, times=90)
def falsify_rows_do_not_depend_on_workers_and_files(
    subject: Any, chats: list[Messages], bad: list[tuple[int, str]], files: int, workers: int, times: int
) -> None:
    """And invalid rows are refused, or left out and named."""
    valid = [json.dumps({"messages": chat, "source": "a"}) for chat in chats] * times
    lines = list(valid)
    for at, text in bad:
        lines.insert(min(at, len(lines)), text)

    def write(place: Path, rows: list[str], files: int, **options: Any) -> dict[str, bytes]:
        (place / "data").mkdir(parents=True)
        (place / "made").mkdir()
        _write(place / "data", rows, files)
        subject.write_chats(place / "data", subject.ChatWriter(Tokenizer()), 99, place / "made", **options)
        return _stored(place / "made")

    with scratch() as folder:
        expected = write(folder / "a", valid, 1)
        for number, count in enumerate((0, workers)):
            made = write(folder / f"b{number}", valid, files, workers=count)
            assert_equal(f"files of {len(valid)} rows in {files} files with {count} workers", made, expected)
            if bad:
                words = refusal(lambda n=number, c=count: write(folder / f"c{n}", lines, files, workers=c), DataError)
                size, first = -(-len(lines) // files), next(n for n, line in enumerate(lines) if line not in valid)
                place = f"{first // size}.jsonl:{first % size + 1}"
                assert f"data/{place}: " in words, f"the first invalid row is {place}: {words or 'accepted'}"
                write(folder / f"d{number}", lines, files, workers=count, skips_invalid=True)
                read = subject.read_chats(folder / f"d{number}" / "made")
                tokens = [document.tokens.tolist() for document in read.documents]
                before = subject.read_chats(folder / "a" / "made").documents
                assert_equal("documents of the other rows", tokens, [document.tokens.tolist() for document in before])
                note = f"{len(bad)} of {len(lines)} rows are invalid, and left out ({place}"
                assert any(note in line for line in read.notes), f"expected {note!r} in {read.notes}"
