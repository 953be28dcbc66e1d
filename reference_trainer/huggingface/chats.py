"""Convert the chats and texts in files to documents of tokens. In a chat, only the assistant's answers are predicted.

A line of a JSON-lines file, or a row of a Parquet file or of a saved dataset, has one of three forms:

- `messages`, a list of objects with `role` and `content`, with or without `tools`;
- `prompt` and `completion`; the completion is predicted;
- `text`, whose tokens are all predicted, except special tokens at its beginning.

Fields of rows and messages that have no effect on the tokens are counted and reported.
"""

from __future__ import annotations

import glob
import hashlib
import json
import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy
import torch

from reference_trainer.data.documents import Document, StoredDocuments, write_documents
from reference_trainer.data.workers import ordered_map
from reference_trainer.errors import DataError, SettingError, first_line, similar_path
from reference_trainer.huggingface.pieces import Pieces
from reference_trainer.storage.files import file_digest

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

STATE = "state.json"
"""Name of the file of a saved dataset that lists its Arrow files."""
BATCH = 1000
"""Number of rows of a Parquet file that are in memory at once."""


def files_of(path: Path) -> list[Path]:
    """Return the files and saved datasets that a path names, in the order of their names.

    The path is a file, a saved dataset, another directory (its .jsonl and .parquet files), or a pattern such as
    `data/*.jsonl`. Raise `DataError` if nothing matches a pattern.
    """
    if path.is_dir() and not (path / STATE).exists():
        return sorted(file for file in path.iterdir() if file.suffix in (".jsonl", ".parquet")) or [path]
    if path.exists() or not glob.has_magic(str(path)):
        return [path]
    matches = sorted(map(Path, glob.glob(str(path), recursive=True)))  # noqa: PTH207  (may be absolute)
    if not matches:
        raise DataError(f"no file matches {path}; expected .jsonl or .parquet files, or saved datasets")
    return matches


def rows_of(path: Path) -> Iterator[tuple[str, object]]:
    """Yield the location and the content of every row of all files; a row of JSON lines is yielded as text.

    Raise `DataError`, with the file, if a file cannot be read.
    """
    for file in files_of(path):
        yield from _rows_of_file(file)


def _rows_of_file(path: Path) -> Iterator[tuple[str, object]]:
    """Yield the rows of one file or saved dataset, as `rows_of` does."""
    try:
        if path.is_dir():
            yield from ((f"{path}: row {n}", row) for n, row in enumerate(_saved_rows(path), 1))
        elif path.suffix == ".parquet":
            yield from ((f"{path}: row {n}", row) for n, row in enumerate(_parquet_rows(path), 1))
        else:
            with path.open(encoding="utf-8-sig") as file:
                yield from ((f"{path}:{n}", line) for n, line in enumerate(file, 1) if line.strip())
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}{similar_path(path)}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8: {error}; expected JSON lines or a .parquet file") from error


def digest_of(path: Path) -> str:
    """Return the SHA-256 of the file that a path names, in hexadecimal digits.

    For several files, as of a saved dataset, return the SHA-256 of their joined digests. Raise `DataError` if a file
    cannot be read.
    """
    files = files_of(path)
    if len(files) > 1:
        return hashlib.sha256("".join(map(digest_of, files)).encode()).hexdigest()
    path = files[0]
    try:
        if not path.is_dir():
            return file_digest(path)
        return hashlib.sha256("".join(map(file_digest, _arrow_files(path))).encode()).hexdigest()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}{similar_path(path)}") from error


def check_readable(path: Path) -> None:
    """Raise `DataError` if a file that the path names cannot be opened, or a saved dataset does not list its files."""
    for file in files_of(path):
        try:
            if file.is_dir():
                _arrow_files(file)  # raises if the dataset is invalid
            else:
                file.open("rb").close()
        except OSError as error:
            raise DataError(f"cannot read {file}: {error.strerror or error}{similar_path(file)}") from error


def size_of(path: Path) -> int:
    """Return the number of bytes of all files that the path names. Missing files count as 0."""
    size = 0
    for file in files_of(path):
        parts = file.rglob("*") if file.is_dir() else [file]
        size += sum(part.stat().st_size for part in parts if part.is_file())
    return size


def _parquet_rows(path: Path) -> Iterator[object]:
    """Yield the rows of a Parquet file, which is read `BATCH` rows at a time."""
    import pyarrow
    from pyarrow import parquet

    try:
        for batch in parquet.ParquetFile(path).iter_batches(BATCH):
            yield from batch.to_pylist()
    except pyarrow.ArrowInvalid as error:
        raise DataError(f"cannot read {path}: {first_line(error)}; expected a Parquet file") from error


def _saved_rows(directory: Path) -> Iterator[object]:
    """Yield the rows of a saved dataset, from its Arrow files."""
    import pyarrow

    for file in _arrow_files(directory):
        try:
            with pyarrow.OSFile(str(file)) as source:  # mapped pages would count as memory of the process
                for batch in pyarrow.ipc.open_stream(source):
                    yield from batch.to_pylist()
        except pyarrow.ArrowInvalid as error:
            raise DataError(f"{file} is not an Arrow stream: {error}; expected a file of a saved dataset") from error


def _arrow_files(directory: Path) -> list[Path]:
    """Return the Arrow files of a saved dataset, in the order of its rows."""
    try:
        state = json.loads((directory / STATE).read_text(encoding="utf-8"))
        return [directory / entry["filename"] for entry in state["_data_files"]]
    except FileNotFoundError as error:
        splits = sorted(entry.name for entry in directory.iterdir() if (entry / STATE).exists())
        hint = f"one of its splits, such as {directory / splits[0]}" if splits else "what `save_to_disk` writes"
        raise DataError(f"{directory} is not a saved dataset: missing {STATE}; expected {hint}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{directory / STATE} does not name the files of a dataset: {error!r}") from error


def _json(location: str, text: str, expected: str = "an object on each line") -> object:
    """Return the value of a JSON text. Raise `DataError` with the location and what is expected there."""
    try:
        return json.loads(text.rstrip())
    except json.JSONDecodeError as error:
        reason = f"in column {error.colno}: {error.msg}"
        raise DataError(f"{location}: invalid JSON {reason}; expected {expected}") from error
    except (ValueError, RecursionError) as error:  # an integer with too many digits for `int`, or too deep nesting
        raise DataError(f"{location}: invalid JSON: {error}; expected {expected}") from error


COUNTS = "counts.json"
"""Name of the file beside the stored documents with the counts and the notes of `Chats`."""
CONTINUES = "continues"
"""Name of the file beside the stored documents with `Chats.continues`."""
BLOCK = 250
"""Number of rows that a worker process takes at once."""
PROGRESS = 10_000
"""Number of tokenised rows after which a line is reported."""
FORMS = "expected `messages`, `prompt` and `completion`, or `text`"
MARKS = re.compile(r"\{%[-+]?\s*generation\s*[-+]?%\}")
"""The tag in a chat template at which the tokens of an answer begin."""
QUESTION, ANSWER = {"role": "user", "content": "question"}, {"role": "assistant", "content": "answer"}
TRIED = 16
"""If this number of trials of a field had the same result, further values of the field are not tried."""

Row = tuple[str, object]
"""The location of a row, and its content: an object, or its JSON text."""
Turns = Sequence[Mapping[str, Any]]
Tools = list[object] | None
DIVIDED = (
    "conversations are divided into several documents, since the chat template renders earlier turns differently when "
    "later ones follow"
)
QUOTED = (
    "messages have calls whose arguments are JSON text, which the chat template writes as a quoted string; expected an "
    "object"
)
NO_END = "answers are predicted without an end, since the chat template writes none"
PART_LOST = "answers are not written whole by the chat template, which may leave out a part for thinking"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chats:
    """Stored documents, in the order of their file.

    Attributes:
        documents: The documents.
        cut: The number of documents that were cut.
        empty: The number of documents without a predicted token.
        largest: The largest token.
        continues: One byte per document: 1 if the document continues the conversation of the previous document, else 0.
        notes: Lines about fields without effect, and about other peculiarities of the data.
    """

    documents: Sequence[Document]
    cut: int
    empty: int
    largest: int
    continues: bytes
    notes: Sequence[str]


def write_chats(
    path: Path,
    writer: ChatWriter,
    length: int,
    directory: Path,
    *,
    workers: int = 0,
    skips_invalid: bool = False,
    keeps_empty: bool = False,
    note: Callable[[str], object] = lambda line: None,
) -> None:
    """Write the documents of the files that a path names into a directory.

    The result does not depend on the number of workers: rows are processed in blocks of `BLOCK`, and the trials that
    find fields without effect start again in every block.

    Args:
        path: .jsonl or .parquet files, or saved datasets; see `files_of`.
        writer: The writer that renders the conversations.
        length: Documents are cut after this number of tokens.
        directory: An empty directory.
        workers: The number of processes that tokenise. With 0, this process does, one document in memory at a time.
        skips_invalid: Whether to leave out rows that cannot be read, have another form, or are refused by the chat
            template. A note then has the number of these rows, the places of the first five, and the first reason.
        keeps_empty: Whether to write a document without a predicted token, as a single token. With this option, a
            conversation has the same document numbers for every tokenizer.
        note: A function that is called with a line after every `PROGRESS` rows.

    Raises:
        DataError: A file cannot be read; without `skips_invalid`, a row cannot be read, has another form, or is
            refused by the chat template (the message has the file and the line); or no document has a token to predict.
    """
    counts, continues, refused = Counter[str](), bytearray(), list[Refusal]()
    convert = partial(_convert_rows, writer=writer, length=length, skips_invalid=skips_invalid, keeps_empty=keeps_empty)

    # A generator, so that not all documents are in memory at once. It also collects the counts and the notes.
    def convert_all() -> Iterator[Document]:
        results: Iterator[ConvertedRow]
        if workers:
            results = chain.from_iterable(ordered_map(partial(_convert_block, convert), _blocks(path), workers))
        else:
            results = convert(rows_of(path))
        for number, row in enumerate(results, 1):
            predicted = len(row.documents) - (row.empty if keeps_empty else 0)  # documents with a predicted token
            counts.update(cut=row.cut, empty=row.empty, predicted=predicted, rows=1)
            writer.counts.update(row.counts)
            refused.extend(row.refusal)
            for index, (tokens, unpredicted) in enumerate(row.documents):
                counts["largest"] = max(counts["largest"], int(tokens.max()))
                continues.append(index > 0)
                yield Document(torch.from_numpy(tokens), given=torch.from_numpy(unpredicted))
            if number % PROGRESS == 0:
                note(f"{number:,} rows of {path} are tokenised")

    write_documents(directory, convert_all())
    if not counts["predicted"]:
        reason = ""
        if counts["cut"] and counts["empty"]:
            reason += "; try a larger --length: answers begin after these tokens"
        if refused:
            reason += f"; {len(refused)} rows are left out, the first: {refused[0].reason}"
        raise DataError(f"{path} has no document with a token to predict in its first {length} tokens{reason}")
    (directory / CONTINUES).write_bytes(continues)
    content = {**counts, "notes": [*refusal_notes(refused, counts["rows"]), *writer.notes()]}
    (directory / COUNTS).write_text(json.dumps(content), encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Refusal:
    """A row that is left out.

    Attributes:
        place: The name of the file and the number of the row, such as `chats.jsonl:3`.
        reason: The reason why the row is invalid.
    """

    place: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertedRow:
    """The documents of a row, in a form that is cheap to send between processes.

    Attributes:
        documents: For each document, its tokens, int32 [N], and a mask of the tokens that are not predicted.
        cut: The number of documents that were cut.
        empty: The number of documents without a predicted token.
        counts: The number of times that each note of the writer applies, by the text of the note.
        refusal: A list with the refusal of the row; empty if the row is valid.
    """

    documents: Sequence[tuple[numpy.ndarray, numpy.ndarray]] = ()
    cut: int = 0
    empty: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    refusal: Sequence[Refusal] = ()


def _convert_rows(
    rows: Iterable[Row], *, writer: ChatWriter, length: int, skips_invalid: bool, keeps_empty: bool
) -> Iterator[ConvertedRow]:
    """Convert the rows one by one. The writer begins a new block after every `BLOCK` rows."""
    for number, row in enumerate(rows):
        if number % BLOCK == 0:
            writer.begin_block()
        yield _convert_row(row, writer, length, skips_invalid=skips_invalid, keeps_empty=keeps_empty)


def _convert_row(row: Row, writer: ChatWriter, length: int, *, skips_invalid: bool, keeps_empty: bool) -> ConvertedRow:
    """Convert one row. If it is invalid and `skips_invalid` is True, the result has only the refusal."""
    location, content = row
    documents, cut, empty = [], 0, 0
    # Count in a new counter for this row, because the counts of a refused row are dropped.
    total_counts, writer.counts = writer.counts, Counter[str]()
    try:
        value = _json(location, content) if isinstance(content, str) else content
        uncut = _documents(location, value, writer)
        counts = writer.counts
    except DataError as error:
        if not skips_invalid:
            raise
        return ConvertedRow(refusal=[Refusal(Path(location).name, str(error).removeprefix(f"{location}: "))])
    finally:
        writer.counts = total_counts
    for document in uncut:
        assert document.given is not None, "`_document` sets the mask"
        tokens, unpredicted = document.tokens[:length], document.given[:length]
        is_empty = bool(unpredicted[1:].all())  # nothing precedes the first token, so it is never predicted
        cut += len(document.tokens) > length
        empty += is_empty
        if is_empty:
            if not keeps_empty:
                continue
            tokens, unpredicted = tokens.new_zeros(1), unpredicted.new_ones(1)
        documents.append((tokens.to(torch.int32).numpy(), unpredicted.numpy()))
    return ConvertedRow(documents=documents, cut=cut, empty=empty, counts=counts)


def _convert_block(convert: Callable[[list[Row]], Iterator[ConvertedRow]], block: list[Row]) -> list[ConvertedRow]:
    """Return the converted rows of a block as a list, because a worker process cannot return a generator."""
    return list(convert(block))


def _blocks(path: Path) -> Iterator[list[Row]]:
    """Yield the rows of all files in blocks of `BLOCK` rows; before an error, yield the rows that precede it."""
    block: list[Row] = []
    try:
        for row in rows_of(path):
            block.append(row)
            if len(block) == BLOCK:
                yield block
                block = []
    except DataError:
        if block:
            yield block  # an error in one of these rows is raised first
        raise
    if block:
        yield block


def refusal_notes(refused: Sequence[Refusal], rows: int) -> list[str]:
    """Return a list with a line about the refused rows; empty if there are none. rows: the number of all rows."""
    if not refused:
        return []
    places = ", ".join(refusal.place for refusal in refused[:5]) + (", ..." if len(refused) > 5 else "")
    return [f"{len(refused)} of {rows} rows are invalid, and left out ({places}); the first: {refused[0].reason}"]


def read_chats(directory: Path) -> Chats:
    """Return the chats that `write_chats` has written. A document is read when it is indexed."""
    counts = json.loads((directory / COUNTS).read_text(encoding="utf-8"))
    return Chats(
        documents=StoredDocuments(directory),
        cut=counts["cut"],
        empty=counts["empty"],
        largest=counts["largest"],
        continues=(directory / CONTINUES).read_bytes(),
        notes=counts["notes"],
    )


def read_template(path: Path) -> str:
    """Return the text of a chat template. Raise `SettingError` if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = f"{getattr(error, 'strerror', None) or error}{similar_path(path)}"
        raise SettingError(f"cannot read the chat template {path}: {reason}; expected a Jinja template") from error


def _documents(location: str, row: object, writer: ChatWriter) -> list[Document]:
    """Return the documents of a row. Raise `DataError` with the location if it has another form or is refused."""
    if not isinstance(row, dict):
        raise DataError(f"{location}: {type(row).__name__}, expected an object; {FORMS}")
    try:
        if row.get("messages") is not None:
            _count_keys(row, {"messages", "tools"}, writer)
            return encode_chat(row["messages"], writer, tools=_tools(row.get("tools")))
        if isinstance(row.get("completion"), str) and isinstance(row.get("prompt"), str):
            _count_keys(row, {"prompt", "completion"}, writer)
            return [_encode_completion(row["prompt"], row["completion"], writer)]
        if isinstance(row.get("text"), str):
            _count_keys(row, {"text"}, writer)
            return [_encode_completion("", row["text"], writer)]
    except DataError as error:
        raise DataError(f"{location}: {error}") from error
    except Exception as error:  # a template can raise an error of any class
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise DataError(f"{location}: the chat template rejects it: {reason}") from error
    keys = (f"{name} ({'null' if value is None else type(value).__name__})" for name, value in row.items())
    raise DataError(f"{location}: its keys are {', '.join(keys) or 'none'}; {FORMS}")


def _count_keys(row: Mapping[str, object], used: Set[str], writer: ChatWriter) -> None:
    """Count the keys of a row that have a value and are not `used`."""
    for key in row.keys() - used:
        if not _is_empty(row[key]):
            writer.counts[f"rows have {key!r}, which has no effect"] += 1


def _is_empty(value: object) -> bool:
    return value is None or value == "" or value == [] or value == {}


def _tools(value: object) -> Tools:
    """Return the definitions of tools; None if there are none. Many datasets store the definitions as JSON text."""
    tools = _json("tools", value, "a list") if isinstance(value, str) else value
    if tools is not None and not isinstance(tools, list):
        raise DataError(f"invalid tools: {type(tools).__name__}, expected a list, or a list as JSON text")
    return tools or None


def _encode_completion(prompt: str, completion: str, writer: ChatWriter) -> Document:
    """Return a document of a prompt, its completion and the end-of-sequence token, if any; predict no prompt."""
    tokenizer = writer.tokenizer
    before = tokenizer(prompt)["input_ids"]
    after = tokenizer(completion, add_special_tokens=False)["input_ids"]
    end = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
    if not end:
        writer.counts["texts end without an end-of-sequence token, since the tokenizer has none"] += 1
    if before and before[-1:] == end:  # some tokenizers append this token to every text
        before = before[:-1]
    return _document([*before, *after, *end], [True] * len(before) + [False] * (len(after) + len(end)))


@dataclass(slots=True)
class Rendering:
    """The messages up to an answer, as the chat template renders them.

    Attributes:
        tokens: The tokens, [N].
        unpredicted: A mask of the tokens that are not predicted, [N].
        begin: The position of the answer's first token.
        answer: The index of the answer among the messages.
    """

    tokens: list[int]
    unpredicted: list[bool]
    begin: int
    answer: int


def encode_chat(messages: object, writer: ChatWriter, *, tools: Tools = None) -> list[Document]:
    """Return a conversation as the tokenizer's chat template renders it, with only the answers predicted.

    For each answer, or only the last one if `writer.turns` is "last":

    1. Render the messages up to this answer; only the tokens of this answer are predicted.
    2. If the rendering begins with the tokens of the previous document, the rendering replaces this document; the
       earlier answers stay predicted.
    3. Otherwise the rendering is a new document: the template renders earlier turns differently if later turns follow,
       for example without their thinking.

    Args:
        messages: Objects with `role`, `content` and other keys that the template reads; an answer of `weight` 0 is not
            predicted.
        writer: The writer that renders the messages, and counts fields without effect.
        tools: Definitions of tools, for the template.

    Returns:
        The documents. For a conversation without an answer, one document without tokens.

    Raises:
        DataError: If messages have another form, the tokenizer has no chat template, or the rendering of an answer does
            not begin with its prompt.
    """
    turns = _turns(messages, writer)
    weights = [turn.pop("weight", None) for turn in turns]
    answers = [n for n, turn in enumerate(turns) if turn["role"] == "assistant"]
    if writer.turns == "last":
        answers = answers[-1:]
    documents: list[Rendering] = []
    writer.pieces.clear()
    for n in answers:
        text = writer.text(turns[: n + 1], tools)
        rendering = writer.answer(turns[: n + 1], text, tools)
        previous = documents[-1] if documents else None
        writer.count_unwritten(turns[: n + 1], text, 0 if previous is None else previous.answer + 1, tools)
        if weights[n] == 0:
            writer.counts["answers have the weight 0, and are not predicted"] += 1
            rendering.unpredicted = [True] * len(rendering.tokens)
        if previous is None:
            documents.append(rendering)
            continue
        size = len(previous.tokens)
        if size > rendering.begin or rendering.tokens[:size] != previous.tokens:
            writer.append_end(previous, turns[previous.answer])
            documents.append(rendering)
            continue
        rendering.unpredicted[:size] = previous.unpredicted
        if len(rendering.tokens) > size and not previous.unpredicted[-1] and not writer.ends_answers:
            # The template writes no end of an answer. If the next message is not an answer and begins with an added
            # token, such as the mark of a role, the model learns to end its answer with this token.
            is_followed_by_answer = turns[previous.answer + 1]["role"] == "assistant"
            rendering.unpredicted[size] = is_followed_by_answer or not writer.is_mark(rendering.tokens[size])
        documents[-1] = rendering
    if documents:
        writer.append_end(documents[-1], turns[answers[-1]])
        writer.counts["messages after the last answer are left out"] += len(turns) - 1 - answers[-1]
    writer.counts["messages have a weight that has no effect, since they are not predicted anyway"] += sum(
        weight is not None for n, weight in enumerate(weights) if n not in answers
    )
    writer.counts[DIVIDED] += len(documents) > 1
    return [_document(part.tokens, part.unpredicted) for part in documents] or [_document([], [])]


def _turns(messages: object, writer: ChatWriter) -> list[dict[str, object]]:
    """Return copies of the messages without null values, with contents as text. Raise `DataError` for another form."""
    if not isinstance(messages, list | tuple) or not all(
        isinstance(message, dict) and "role" in message for message in messages
    ):
        raise DataError("invalid messages: expected a list of objects with `role` and `content`")
    turns = [{name: value for name, value in message.items() if value is not None} for message in messages]
    for number, turn in enumerate(turns, 1):
        if isinstance(turn.get("content"), list | tuple):
            turn["content"] = _join_text(number, turn["content"], writer)
        # For a message without content and without other values, such as calls of tools, templates would write "None".
        if "content" not in turn and not any(turn[name] for name in turn.keys() - {"role", "weight"}):
            raise DataError(f"message {number} has no content")
        if turn.get("weight", 1) not in (0, 1):
            raise DataError(f"message {number} has the weight {turn['weight']!r}; expected 0 or 1")
    return turns


def _join_text(number: int, parts: Sequence[Any], writer: ChatWriter) -> str:
    """Join the texts of a content that is a list of parts. Raise `DataError` for a part that is not text."""
    for part in parts:
        kind = part.get("type") if isinstance(part, dict) else type(part).__name__
        if kind != "text" or not isinstance(part.get("text"), str):
            raise DataError(f"message {number} has a content with a part of type {kind!r}; expected text")
        for key in part.keys() - {"type", "text"}:
            if not _is_empty(part[key]):
                writer.counts[f"parts of contents have {key!r}, which has no effect"] += 1
    return "".join(part["text"] for part in parts)


class ChatWriter:
    """Renders conversations by the chat template of a tokenizer, and counts fields of the data without effect.

    Attributes:
        counts: The number of times that each note applies, by the text of the note.

    Args:
        tokenizer: A tokenizer of transformers.
        turns: "every" answer of a conversation is predicted, or the "last".
        options: Variables of the template, such as `enable_thinking`.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, *, turns: str = "every", options: Mapping[str, object] | None = None
    ) -> None:
        self.tokenizer, self.turns, self.options = tokenizer, turns, dict(options or {})
        self.counts = Counter[str]()
        self.begin_block()

    def begin_block(self) -> None:
        """Reset the trials, so that documents and notes of a block do not depend on earlier rows."""
        self.pieces = Pieces(self.tokenizer)
        # For each field of the data: the number of trials in which a change of its value changed the text (True), and
        # of those in which the text was the same (False).
        self._trials: defaultdict[str, Counter[bool]] = defaultdict(Counter)

    def notes(self) -> list[str]:
        """Return a line for each count that is not 0, and for each option that the template does not name."""
        lines = [f"{text} ({count:,})" for text, count in self.counts.items() if count]
        template = json.dumps(getattr(self.tokenizer, "chat_template", None) or "")  # may be a mapping of templates
        unread = [name for name in self.options if not re.search(rf"\b{re.escape(name)}\b", template)]
        return [*lines, *(f"the chat template does not read the option {name!r}" for name in unread)]

    def answer(self, turns: Turns, text: str, tools: Tools) -> Rendering:
        """Return the rendering of messages that end with an answer; only this answer is predicted.

        If the template has `{% generation %}` tags and the tokenizer is fast, the tokens of the answer inside the tags
        are predicted; otherwise all tokens after the prompt.

        Args:
            turns: The messages.
            text: The result of `self.text` for the messages.
            tools: Definitions of tools.
        """
        answer = len(turns) - 1
        template = self.tokenizer.get_chat_template(tools=tools)
        # The tags mark positions of characters. Only a fast tokenizer can convert these to positions of tokens.
        if MARKS.search(template) and getattr(self.tokenizer, "is_fast", True):
            rendered = self._render(turns, tools, return_dict=True, return_assistant_tokens_mask=True)
            tokens, masks = list(rendered["input_ids"]), rendered["assistant_masks"]
            begin = _common_length(self._tokens(turns[:-1], tools), tokens) if len(turns) > 1 else 0
            is_unmarked = not any(masks[begin:])
            self.counts["answers have no token that the chat template marks by {% generation %}"] += is_unmarked
            unpredicted = [n < begin or not mask for n, mask in enumerate(masks)]
            return Rendering(tokens, unpredicted, begin, answer)
        tokens = self._tokens(turns, tools, text)
        begin = self._begin(turns, tokens, tools)
        return Rendering(tokens, [True] * begin + [False] * (len(tokens) - begin), begin, answer)

    def _begin(self, turns: Turns, tokens: Sequence[int], tools: Tools) -> int:
        """Return the position where the last message, an answer, begins in the `tokens` of all messages.

        Raise `DataError` if the answer follows a message of another role, and the template begins the answer in another
        way than its prompt for answers.
        """
        before = turns[:-1]
        if before:
            # 1. The tokens begin with the whole prompt: the answer begins at its end.
            prompt = self._tokens(before, tools, add_generation_prompt=True)
            begin = _common_length(prompt, tokens)
            if begin == len(prompt):
                return begin
            # 2. The tokens begin with all earlier messages and a part of the text that the prompt adds, for example
            # without its `<think>`: the answer begins where the prompt and the tokens differ.
            earlier = self._tokens(before, tools)
            if begin > len(earlier) and tokens[: len(earlier)] == earlier:
                missing = self.tokenizer.decode(prompt[begin:])
                self.counts[
                    f"answers do not begin with {missing!r}, with which the prompt for an answer ends, and are "
                    "predicted without it; see --template-options and --chat-template"
                ] += 1
                return begin
            if before[-1]["role"] != "assistant":
                raise DataError(
                    f"the chat template does not begin message {len(turns)}, an answer, with the prompt for it; use a "
                    "template that marks answers by {% generation %} (--chat-template FILE)"
                )
        # 3. The answer is the first message, or follows another answer, which the template may render differently in a
        # prompt. Then replace the answer by a short answer: the answer begins where the tokens differ. Two short
        # answers are tried, because the answer may begin with the same token as one of them.
        variants = ([*before, {"role": "assistant", "content": text}] for text in ("a", "b"))
        return min(_common_length(tokens, self._tokens(variant, tools)) for variant in variants)

    def _tokens(self, turns: Turns, tools: Tools, text: str | None = None, **options: object) -> list[int]:
        """Return the tokens of messages. text: the result of `self.text` for the same messages, if it is known."""

        def tokenize_whole() -> list[int]:
            return list(self._render(turns, tools, return_dict=False, **options))

        if not self.pieces.can_split:
            return tokenize_whole()
        return self.pieces.tokens(self.text(turns, tools, **options) if text is None else text, tokenize_whole)

    def _render(self, turns: Turns, tools: Tools, **options: object) -> Any:
        return self.tokenizer.apply_chat_template(list(turns), tools=tools, **self.options, **options)

    @cached_property
    def ends_answers(self) -> bool:
        """Whether the template writes an end after an answer; True for a template with `{% generation %}` tags."""
        if MARKS.search(self.tokenizer.get_chat_template(tools=None)):
            return True
        return not self.text([QUESTION, ANSWER], None).rstrip().endswith(ANSWER["content"])

    def is_mark(self, token: int) -> bool:
        """Return whether the first token after an answer is an added token; count the result in `counts`.

        An added token, such as the mark of a role, can end the answer, because it does not occur in the answer itself.
        """
        if token not in self.tokenizer.added_tokens_decoder:
            self.counts[NO_END] += 1
            return False
        name = self.tokenizer.convert_ids_to_tokens(token)
        self.counts[f"answers are ended by {name!r}, with which the next message begins"] += 1
        return True

    def append_end(self, document: Rendering, answer: Mapping[str, object]) -> None:
        """If the template writes no end of the last `answer`, append the token with which a user's message would begin.

        Append it only if it is an added token, and the end of the document is predicted.

            After an answer that calls tools, no user's message follows, so nothing is appended.
        """
        if document.unpredicted[-1] or self.ends_answers:
            return
        _, written, rest = self.text([QUESTION, ANSWER, QUESTION], None).rpartition(ANSWER["content"])
        following = self.tokenizer(rest, add_special_tokens=False)["input_ids"]
        if answer.get("tool_calls") or not written or not following:
            self.counts[NO_END] += 1
        elif self.is_mark(following[0]):
            document.tokens.append(following[0])
            document.unpredicted.append(False)

    def count_unwritten(self, turns: Turns, text: str, begin: int, tools: Tools) -> None:
        """Count the fields without effect in the messages from `begin` on: `text` is the same if the field changes.

        A content that `text` includes is not tried if `TRIED` contents of the same role had an effect before.
        """
        for number in range(begin, len(turns)):
            turn = turns[number]

            # The default value keeps the present number, because the loop changes the variable.
            def is_written(key: str, value: object, number: int = number) -> bool:
                changed = {**turns[number], key: value}
                return self._differs(text, [*turns[:number], changed, *turns[number + 1 :]], tools)

            for key, value in turn.items():
                if key == "content":
                    self._count_content(turn["role"], value, text, is_written)
                elif key != "role":
                    self._count_field(key, "messages", value, partial(is_written, key))
                if key == "tool_calls":
                    self.counts[QUOTED] += any(json.dumps(argument) in text for argument in _texts_of_arguments(value))
        if tools and begin == 0:
            self._count_field("tools", "rows", tools, lambda changed: self._differs(text, turns, changed))

    def _count_content(self, role: str, value: object, text: str, is_written: Callable[[str, object], bool]) -> None:
        """Count a content that the template does not write, and an answer that it writes only in part."""
        trials = self._trials[f"content of {role}"]
        # Templates may change spaces, so texts without spaces are compared if the direct comparison fails.
        is_whole = isinstance(value, str) and (value in text or "".join(value.split()) in "".join(text.split()))
        if _is_empty(value) or (is_whole and trials[True] >= TRIED):
            return
        if is_written("content", _change(value)):
            trials[True] += 1
            self.counts[PART_LOST] += role == "assistant" and not is_whole
        else:
            self.counts[f"messages of role {role!r} have a content that the chat template does not write"] += 1

    def _count_field(self, name: str, unit: str, value: object, is_written: Callable[[Any], bool]) -> None:
        """Count a field without effect. For a nested field with an effect, count the parts without effect, by path."""
        if _is_empty(value):
            return
        unwritten = set[str]()
        if not is_written(_change(value)):
            unwritten.add(name)
        elif isinstance(value, dict | list):
            for path, changed in _variants(value):
                # Rendering is slow, so a part is not tried again after `TRIED` trials with the same result.
                trials = self._trials[name + path]
                if trials.total() < TRIED or len(trials) > 1:
                    trial = is_written(changed)
                    trials[trial] += 1
                else:
                    (trial,) = trials  # the only key
                if not trial:
                    unwritten.add(name + path)
        for path in unwritten:
            self.counts[f"{unit} have {path!r}, which the chat template does not write"] += 1

    def _differs(self, text: str, turns: Turns, tools: Tools) -> bool:
        """Return whether the template renders the messages differently from `text`, or refuses them."""
        try:
            return self.text(turns, tools) != text
        except Exception:  # a template that refuses the value has read it
            return True

    def text(self, turns: Turns, tools: Tools, **options: object) -> str:
        """Return the text of messages as the template renders them. Raise `DataError` without a template."""
        if not self.tokenizer.chat_template:
            raise DataError("the tokenizer has no chat template; use --chat-template FILE")
        return str(self._render(turns, tools, tokenize=False, **options))


def _texts_of_arguments(calls: object) -> Iterator[str]:
    """Yield those arguments of tool calls that are JSON text instead of an object."""
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function", call) if isinstance(call, dict) else None
        arguments = function.get("arguments") if isinstance(function, dict) else None
        if isinstance(arguments, str):
            yield arguments


def _common_length(one: Sequence[int], other: Sequence[int]) -> int:
    """Return the number of equal items at the beginning of two sequences."""
    if one == other[: len(one)]:  # fast, and the usual case
        return len(one)
    for position, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return position
    return min(len(one), len(other))


def _change(value: Any) -> Any:
    """Return a JSON value with all values in it changed, except keys and nulls."""
    if isinstance(value, dict):
        return {key: _change(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_change(part) for part in value]
    if isinstance(value, bool):
        return not value
    if value is None:
        return None
    return value + "x" if isinstance(value, str) else value + 1


def _variants(value: object, key: str = "") -> Iterator[tuple[str, object]]:
    """Yield, for every part of a JSON value, the keys that lead to the part, and the value with this part changed.

    The arguments of a call are one part, and all parameters of a function have the same path, since their names are
    data. `"type": "function"`, which every call and tool of this form has, is left out. key: the last key of `value`.
    """
    if isinstance(value, list):
        for index, part in enumerate(value):
            for path, changed in _variants(part, key):
                yield path, [*value[:index], changed, *value[index + 1 :]]
    elif isinstance(value, dict) and key != "arguments":
        for name, part in value.items():
            for path, changed in _variants(part, name):
                yield ("" if key == "properties" else f".{name}") + path, {**value, name: changed}
    elif not _is_empty(value) and (key, value) != ("type", "function"):
        yield "", _change(value)


def _document(tokens: Sequence[int], unpredicted: Sequence[bool]) -> Document:
    """Return the document with these tokens and this mask."""
    # A conversion by `array` is several times as fast as `torch.tensor` of a list.
    tokens_N = torch.from_numpy(numpy.frombuffer(array("q", tokens), dtype="int64"))
    return Document(tokens_N, given=torch.from_numpy(numpy.frombuffer(bytearray(unpredicted), dtype="bool")))
