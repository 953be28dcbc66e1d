"""A student whose teacher has another tokenizer; the contract `universal` has the claims about its steps."""

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from reference_trainer import DataError, Lines, SettingError, distill
from reference_trainer.data.documents import (
    TOKENS,
    ChainedDocuments,
    Document,
    StoredDocuments,
    document_sizes,
    write_documents,
)
from reference_trainer.errors import DriftError
from reference_trainer.huggingface.models import load_tokenizer
from reference_trainer.huggingface.pairs import PairedDocuments
from tests.reference_trainer.forked import Process
from tests.reference_trainer.huggingface.small_models import (
    MARKS,
    TEMPLATE,
    digest,
    run_ranks,
    settings,
    tokenizer,
    write_model,
)

tokenizers = pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")
WORDS = ["repeat", "red", "green", "one", "two", "cat", " "]


@pytest.fixture(scope="module")
def other(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a student of words beside the teacher of byte pairs, and their chats."""
    folder = tmp_path_factory.mktemp("words")
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel({word: n for n, word in enumerate([*MARKS, *WORDS])}))
    model.pre_tokenizer = tokenizers.pre_tokenizers.Split(" ", "isolated")
    model.decoder = tokenizers.decoders.Fuse()
    words = transformers.PreTrainedTokenizerFast(tokenizer_object=model, eos_token=MARKS[0])
    words.add_special_tokens({"additional_special_tokens": MARKS[1:]})
    words.chat_template = TEMPLATE
    write_model(folder / "student", words, 16)
    for name in ("teacher", "chats.jsonl"):
        (folder / name).symlink_to(place / name)
    return folder


def distilled(other: Path, out: Path, **options: Any) -> tuple[Any, str]:
    output = io.StringIO()
    usual = {"cross_tokenizer": True, "ce_weight": 0.5, "temperature": 2.0}
    return distill(settings(other, out, **usual | options), lines=Lines(output)), output.getvalue()


def test_command_trains_evaluates_and_records_both_tokenizers(other: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    models = [f"--{name}={other / name}" for name in ("teacher", "student")]
    options = "--cross-tokenizer --ce-weight 0.5 --length 64 --epochs 1 --warmup 0 --log-every 4 --eval-every 9".split()
    command = ["distill", *models, f"--data={other / 'chats.jsonl'}", "--out", str(out), *options]
    process = Process([*command, "--batch-size=3", "--device=cpu"], tmp_path, dict(os.environ))
    text = process.stdout.read()
    assert process.wait() == 0, process.stderr.read()
    assert "universal_distance" in text and "kl_at_1=" not in text and "agreement=" not in text
    assert (
        "held-back universal_distance" in text and "nats" not in text.partition("held-back universal")[2].split("\n")[0]
    )
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["tokenizer_sha256"] != manifest["teacher_tokenizer_sha256"]
    assert manifest["evaluation"]["vocabulary"] == "cross_tokenizer"
    assert load_tokenizer(out).get_vocab() == load_tokenizer(other / "student").get_vocab()


def test_resumed_run_ends_with_the_same_weights_and_compares_the_tokenizer(
    other: Path, tmp_path: Path, place: Path
) -> None:
    distilled(other, tmp_path / "whole", max_steps=4)
    distilled(other, tmp_path / "out", max_steps=2, save_every=2)
    again: dict[str, Any] = {"resume": Path("latest"), "force": True}
    distilled(other, tmp_path / "out", max_steps=4, **again)
    assert digest(tmp_path / "out") == digest(tmp_path / "whole") != digest(other / "student")
    words = load_tokenizer(place / "teacher")
    words.chat_template = words.chat_template.replace("<|end|>", "<|end|>\n")
    write_model(tmp_path / "teacher", words, 32)
    with pytest.raises(DriftError, match="teacher_chat_template_sha256"):
        distilled(other, tmp_path / "out", teacher=tmp_path / "teacher", max_steps=6, **again)


def test_two_ranks_have_the_weights_of_one(other: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    for count in (1, 2):
        run_ranks(other, tmp_path / f"{count}", count, "--cross-tokenizer", "--max-steps=4", "--eval-every=4")
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("1", "2"))
    assert max(float((one[name] - two[name]).abs().max()) for name in one) < 1e-12
    sums = [json.loads((tmp_path / name / "manifest.json").read_text())["held_back"] for name in ("1", "2")]
    one_rank, two_ranks = ([(part["sum"], part["count"]) for part in metrics.values()] for metrics in sums)
    assert torch.allclose(torch.tensor(one_rank), torch.tensor(two_ranks))


def test_text_beyond_the_length_of_either_is_not_compared_and_is_counted(other: Path, tmp_path: Path) -> None:
    bytewise = tokenizer("", size=260)
    write_model(tmp_path / "teacher", bytewise, 32)
    _, output = distilled(other, tmp_path / "cut", max_steps=1, length=60, teacher=tmp_path / "teacher")
    line = next(line for line in output.splitlines() if "are compared with the teacher's" in line)
    compared, scored = (int(word) for word in line.split() if word.isdecimal())
    assert 0 < compared < scored, line
    _, output = distilled(other, tmp_path / "whole", max_steps=1, length=200)
    line = next(line for line in output.splitlines() if "are compared with the teacher's" in line)
    assert len({word for word in line.split() if word.isdecimal()}) == 1, line


def test_templates_that_divide_conversations_differently_are_refused(other: Path, place: Path, tmp_path: Path) -> None:
    words = load_tokenizer(place / "teacher")
    words.chat_template = TEMPLATE.replace(
        "{{ m['content'] }}", "{{ m['content'] if loop.last or m['role'] == 'user' else '' }}"
    )
    write_model(tmp_path / "teacher", words, 32)
    with pytest.raises(DataError, match=r"30 documents in the student's chat template and \d+ in .* --turns last"):
        distilled(other, tmp_path / "out", teacher=tmp_path / "teacher")


def test_refusal_of_another_tokenizer_names_the_setting(other: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"differ in .* tokens: .*; --cross-tokenizer"):
        distilled(other, tmp_path / "out", cross_tokenizer=False)
    with pytest.raises(SettingError, match=r"unknown metric 'eval/kl_at_1' .* with another tokenizer of a teacher"):
        distilled(other, tmp_path / "out", best_metric="eval/kl_at_1")


def test_lengths_of_pairs_are_known_without_reading_tokens(tmp_path: Path) -> None:
    write_documents(tmp_path, [Document(torch.zeros(size, dtype=torch.int64)) for size in (3, 1, 2)])
    stored = StoredDocuments(tmp_path)
    (tmp_path / TOKENS).write_bytes(b"")
    pairs = PairedDocuments(stored, stored, stored)
    assert document_sizes(ChainedDocuments([pairs, pairs[::2]])).tolist() == [3, 1, 2, 3, 2]
