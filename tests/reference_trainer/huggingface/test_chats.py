"""Chats from files and datasets, and their refusals."""

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from reference_trainer import DataError, Lines, ModelFileError, OutputError, SettingError, distill
from reference_trainer.huggingface.chats import Chats, ChatWriter, check_readable, digest_of, read_chats, write_chats
from reference_trainer.huggingface.models import load_tokenizer
from tests.reference_trainer.huggingface.small_models import settings

pytest.importorskip("transformers")


def chats_of(data: Path, place: Path, folder: Path) -> Chats:
    stored = folder / f"{data.name}-tokens"
    stored.mkdir(exist_ok=True)
    write_chats(data, ChatWriter(load_tokenizer(place / "student")), 99, stored)
    return read_chats(stored)


def test_length_that_ends_before_every_answer_is_named_as_too_small(place: Path, tmp_path: Path) -> None:
    words = ChatWriter(load_tokenizer(place / "student"))
    with pytest.raises(DataError, match="in its first 2 tokens; try a larger --length"):
        write_chats(place / "chats.jsonl", words, 2, tmp_path)


def test_tokens_are_made_once_and_smoke_runs_leave_none(place: Path, tmp_path: Path) -> None:
    """Another length has other ones; a cache that cannot be written names its setting."""
    options: dict[str, Any] = {"data_cache": tmp_path / "cache", "max_steps": 1, "save_every": 0}
    distill(settings(place, tmp_path / "smoke", **options | {"smoke": 1, "max_steps": None}))
    assert not (tmp_path / "cache").exists()
    times = set[int]()
    for name, others, entries in (("a", {}, 1), ("b", {}, 1), ("c", {"length": 40}, 2)):
        distill(settings(place, tmp_path / name, **options | others))
        times |= {path.stat().st_mtime_ns for path in (tmp_path / "cache").glob("chats-*")}
        assert len(times) == entries
    with pytest.raises(OutputError, match="use --data-cache to choose another directory"):
        distill(settings(place, tmp_path / "d", **options | {"data_cache": place / "chats.jsonl"}))


def test_tokens_beyond_the_limit_are_removed_and_those_of_the_run_are_not(place: Path, tmp_path: Path) -> None:
    old = tmp_path / "cache" / f"chats-{'a' * 64}"
    old.mkdir(parents=True)
    (old / "tokens").touch()
    os.truncate(old / "tokens", 3 * 2**30)  # without blocks on the disk
    output = io.StringIO()
    for gib, is_kept in ((0, True), (3, False)):
        others: dict[str, Any] = {"data_cache": tmp_path / "cache", "data_cache_gib": gib, "max_steps": 1}
        distill(settings(place, tmp_path / str(gib), save_every=0, **others), lines=Lines(output))
        assert old.exists() == is_kept
    assert len(list((tmp_path / "cache").glob("chats-*"))) == 1
    assert output.getvalue().count("data: removed 3,221,225,472 bytes of the least recently used chats from ") == 1


def test_saved_dataset_has_the_rows_of_its_shards_in_order(place: Path, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    rows = [json.loads(line) for line in (place / "chats.jsonl").read_text().splitlines()]
    whole = datasets.Dataset.from_list(rows)
    whole.save_to_disk(tmp_path / "data", num_shards=12)
    datasets.DatasetDict({"train": whole}).save_to_disk(tmp_path / "splits")
    dataset, lines = (chats_of(path, place, tmp_path) for path in (tmp_path / "data", place / "chats.jsonl"))
    digest = digest_of(tmp_path / "data")
    assert all(map(torch.equal, (d.tokens for d in dataset.documents), (d.tokens for d in lines.documents)))
    assert len(dataset.documents) == len(lines.documents) == 30 and digest != digest_of(place / "chats.jsonl")
    with pytest.raises(DataError, match=r"splits is not a saved dataset.*such as .*splits/train"):
        chats_of(tmp_path / "splits", place, tmp_path)
    (tmp_path / "data/data-00001-of-00012.arrow").write_bytes(b"other")
    assert digest_of(tmp_path / "data") != digest
    with pytest.raises(DataError, match=r"data-00001-of-00012\.arrow is not an Arrow stream"):
        chats_of(tmp_path / "data", place, tmp_path)


def test_state_of_a_dataset_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state.json").mkdir()
    with pytest.raises(DataError, match=r"^cannot read .*: Is a directory"):
        check_readable(tmp_path)


@pytest.mark.parametrize(
    ("tools", "reason"),
    [
        ('[{"name": ]', "1: tools: invalid JSON in column 11: Expecting value; expected a list"),
        ("[" * 100_000, "1: tools: invalid JSON: "),
    ],
)
def test_tools_that_are_no_json_are_refused(tools: str, reason: str, place: Path, tmp_path: Path) -> None:
    row = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "tools": tools}
    (tmp_path / "data.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    with pytest.raises(DataError, match=reason):
        chats_of(tmp_path / "data.jsonl", place, tmp_path)


def test_row_that_is_nested_too_deeply_is_refused(place: Path, tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text("[" * 100_000, encoding="utf-8")
    with pytest.raises(DataError, match=r"data\.jsonl:1: invalid JSON: "):
        chats_of(tmp_path / "data.jsonl", place, tmp_path)


def test_file_that_is_no_parquet_is_refused(place: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    for name, content in (("empty.parquet", b""), ("text.parquet", b"PAR1 and no more, PAR1")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=f"cannot read .*{name}: "):
            chats_of(tmp_path / name, place, tmp_path)


def test_models_of_other_sizes_than_the_tokenizer_are_refused(place: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    for name, more in (("teacher", 20), ("student", -200)):
        config = transformers.LlamaConfig.from_pretrained(place / name)
        config.vocab_size += more
        transformers.LlamaForCausalLM(config).save_pretrained(tmp_path / name)
        load_tokenizer(place / name).save_pretrained(tmp_path / name)
    with pytest.raises(SettingError, match="teacher has logits of 320 tokens and the student of 300; use --share-v"):
        distill(settings(place, tmp_path / "out", teacher=tmp_path / "teacher"))
    for mode in (None, "truncate"):
        with pytest.raises(DataError, match=r"token 2\d\d, but the vocabulary of the student has only 100 tokens"):
            distill(settings(place, tmp_path / "out", student=tmp_path / "student", share_vocabulary=mode))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"teacher": None}, SettingError, "--student needs --teacher"),
        ({"data": None}, SettingError, "--student needs --data"),
        ({"data": Path("missing.jsonl")}, DataError, "cannot read missing.jsonl"),
        ({"teacher": Path("/dev")}, ModelFileError, "expected a model of transformers"),
    ],
)
def test_what_is_missing_is_named(place: Path, tmp_path: Path, change: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        distill(settings(place, tmp_path / "out", **change))
