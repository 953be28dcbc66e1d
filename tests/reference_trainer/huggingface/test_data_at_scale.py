"""Runs on several files, with weights, rows left out, worker processes and batches of similar lengths."""

import io
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from reference_trainer import (
    DataError,
    Distillation,
    Document,
    DriftError,
    Lines,
    MetricSum,
    ModelFileError,
    SettingError,
    Settings,
    StreamedBatches,
    distill,
)
from reference_trainer.data.workers import ordered_map
from reference_trainer.models.decoder import DecoderConfig, new_decoder
from tests.reference_trainer.huggingface.small_models import settings

pytest.importorskip("transformers")
datasets = pytest.importorskip("datasets")


def weights(out: Path) -> bytes:
    return (out / "model.safetensors").read_bytes()


def run(place: Path, out: Path, **others: Any) -> str:
    """Distill; return the lines."""
    output = io.StringIO()
    distill(settings(place, out, data_cache=out.parent / "cache", **others), lines=Lines(output))
    return output.getvalue()


@pytest.fixture
def shorter(place: Path, tmp_path: Path) -> Path:
    """Return a file with the first ten conversations and an invalid line."""
    lines = (place / "chats.jsonl").read_text().splitlines()[:10]
    path = tmp_path / "more.jsonl"
    path.write_text("\n".join([*lines[:3], '{"messages": 3}', *lines[3:]]))
    return path


@pytest.mark.parametrize("documents", ["pad", "pack"])
def test_resumed_mixture_ends_with_the_same_weights(place: Path, tmp_path: Path, shorter: Path, documents: str) -> None:
    options: dict[str, Any] = {"mix": json.dumps({str(shorter): 0.5}), "skip_invalid_rows": True, "epochs": 2}
    options |= {"documents": documents, "save_every": 2}
    lines = run(place, tmp_path / "whole", **options)
    assert "rows: 66.7% of " in lines and "1 of 11 rows are invalid, and left out (more.jsonl:4)" in lines
    run(place, tmp_path / "parts", max_steps=5, **options)
    run(place, tmp_path / "parts", resume=Path("latest"), data_workers=2, force=True, **options)
    assert weights(tmp_path / "parts") == weights(tmp_path / "whole")
    other = options | {"mix": json.dumps({str(shorter): 1})}
    with pytest.raises(DriftError, match="mix"):
        run(place, tmp_path / "parts", resume=Path("latest"), force=True, **other)


def test_resumed_batches_of_similar_lengths_end_with_the_same_weights(place: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"group_by_length": True, "epochs": 2, "save_every": 2}
    run(place, tmp_path / "whole", **options)
    run(place, tmp_path / "parts", max_steps=5, **options)
    run(place, tmp_path / "parts", resume=Path("latest"), force=True, **options)
    assert weights(tmp_path / "parts") == weights(tmp_path / "whole")
    run(place, tmp_path / "plain", epochs=2)
    assert weights(tmp_path / "plain") != weights(tmp_path / "whole")
    with pytest.raises(DriftError, match="group_by_length"):
        run(place, tmp_path / "parts", resume=Path("latest"), force=True, **options | {"group_by_length": False})


class Streaming(Distillation):
    """Trains on an `IterableDataset`, which has no random access."""

    def make_batches(self) -> StreamedBatches:
        rows = [{"text": f"{number} and {number + 1}. " * (1 + number % 3)} for number in range(48)]
        dataset = datasets.Dataset.from_list(rows).to_iterable_dataset(num_shards=3)

        def documents(epoch: int) -> Iterator[Document]:
            shuffled = dataset.shuffle(seed=self.settings.run.seed, buffer_size=5)
            shuffled.set_epoch(epoch)
            return (Document(torch.tensor(list(row["text"].encode()))) for row in shuffled)

        return StreamedBatches(documents=documents, batches=5, length=64, batch_size=2, pack=True)

    def make_teacher(self) -> nn.Module:
        return new_decoder(DecoderConfig(vocab_size=self.vocab_size, layers=1, width=16, heads=1), seed=5)

    def evaluate(self) -> dict[str, MetricSum]:
        return {}


def test_resumed_stream_of_datasets_ends_with_the_same_weights(tmp_path: Path) -> None:
    def streamed(out: str, **others: Any) -> None:
        options: dict[str, Any] = {"epochs": 2, "save_every": 2, "layers": 1, "width": 16, "accumulate": 2, "lr": 0.01}
        chosen = Settings(out=tmp_path / out, device="cpu", log_every=0, **options, **others)
        with Streaming(chosen, lines=Lines(io.StringIO())) as run, run:
            run.prepare()
            run.conclude(run.run())

    streamed("whole")
    for at in (2, 3, 5):  # in the middle of the first epoch, at its end, and in the second
        streamed(f"parts{at}", max_steps=at)
        streamed(f"parts{at}", resume=Path("latest"), force=True)
        assert weights(tmp_path / f"parts{at}") == weights(tmp_path / "whole")
    streamed("other", seed=1)
    assert weights(tmp_path / "other") != weights(tmp_path / "whole")


def test_settings_without_effect_and_other_weights_are_named(place: Path, tmp_path: Path, shorter: Path) -> None:
    lines = run(place, tmp_path / "a", group_by_length=True, documents="pack", max_steps=1, save_every=0)
    assert "group_by_length has no effect without padded rows of documents" in lines
    with pytest.raises(SettingError, match=r"invalid weight of 'b.jsonl' in 'mix'"):
        run(place, tmp_path / "b", mix='{"b.jsonl": 0}')
    with pytest.raises(DataError, match=r"more.jsonl:4: "):
        run(place, tmp_path / "c", mix=json.dumps({str(shorter): 1}))


def test_missing_files_are_refused_before_tokens_are_made(place: Path, tmp_path: Path) -> None:
    missing: dict[str, Any] = {"eval_data": Path("none.jsonl"), "teacher_outputs": Path("none")}
    missing |= {"mix": '{"none-*.jsonl": 1}'}
    for option, value in missing.items():
        with pytest.raises((DataError, ModelFileError), match="none"):
            run(place, tmp_path / "out", **{option: value})
        assert not (tmp_path / "cache").exists()


def killed(block: int) -> int:
    if block == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return block


def test_killed_worker_is_named_and_does_not_hang() -> None:
    with pytest.raises(DataError, match="use fewer --data-workers"):
        list(ordered_map(killed, range(20), 2))
    assert list(ordered_map(abs, range(-9, 0), 2)) == list(range(9, 0, -1))
