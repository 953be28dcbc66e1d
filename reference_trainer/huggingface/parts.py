"""A distillation of Hugging Face models on chats: `distill --teacher MODEL --student MODEL --data CHATS`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from reference_trainer.data.batches import Document
from reference_trainer.data.documents import rows_of_documents
from reference_trainer.data.epochs import Batches, ShuffledBatches
from reference_trainer.data.text import Rows
from reference_trainer.errors import DataError, SettingError
from reference_trainer.huggingface.chats import Chats, read_chats
from reference_trainer.huggingface.models import (
    Causal,
    check_isolation,
    check_tokens,
    load_model,
    load_tokenizer,
    save_model,
    tokenizer_digests,
)
from reference_trainer.pipeline.distill import Distillation
from reference_trainer.storage.export import MANIFEST, verify_manifest

__all__ = ["HuggingFace"]


class HuggingFace(Distillation):
    """Teacher and student are causal models of transformers, the data chats; the last tenth of these is held back.

    The teacher keeps the data type of its files. Rows are conversations, padded, or several of them with `documents`
    `pack`. Raise `SettingError` for missing settings and for tokenizers that differ, `ModelFileError` for a model that
    cannot be loaded, `DataError` for data that cannot be read.
    """

    def make_batches(self) -> Batches:
        settings = self.settings
        if settings.data is None or settings.teacher is None or settings.student is None:
            missing = (
                "--teacher with a Hugging Face model" if settings.teacher is None else "--data with a file of chats"
            )
            raise SettingError(f"--student needs {missing}")
        check_tokens(self.tokenizer, load_tokenizer(settings.teacher))
        documents = self._documents(settings.data)
        cut = self._cut(documents)
        training, self._held_back = self._rows(documents[:cut]), self._rows(documents[cut:])
        place = {"rank": self.place.rank, "world_size": self.place.world_size}
        return ShuffledBatches(sequences=training, seed=settings.seed, **place)

    @cached_property
    def tokenizer(self) -> Any:
        assert self.settings.student is not None
        return load_tokenizer(self.settings.student)

    def make_held_back(self, *, whole: bool) -> None:
        if self.settings.data is None:
            raise SettingError("Hugging Face models need --data with a file of chats")
        documents = self._documents(self.settings.data)
        documents = documents if whole else documents[self._cut(documents) :]
        self._largest_byte = max(int(each.tokens.max()) for each in documents)
        self._held_back = self._rows(documents)

    def _documents(self, data: Path) -> Sequence[Document]:
        chats = read_chats(data, self.tokenizer, self.settings.length)
        for line in _notes(chats, self.settings.length):
            self.lines.write(line)
        self.digests |= {"data_sha256": chats.digest, **tokenizer_digests(self.tokenizer)}
        return chats.documents

    def _cut(self, documents: Sequence[Document]) -> int:
        """Return the number of documents to train on; the others are held back."""
        cut = len(documents) * 9 // 10
        if not cut:
            raise DataError(f"{self.settings.data} has one conversation to predict; expected two, as one is held back")
        return cut

    def _rows(self, documents: Sequence[Document]) -> Rows:
        settings = self.settings
        shape: Any = {"length": settings.length, "batch_size": settings.batch_size, "device": self.device}
        return rows_of_documents(documents, pack=settings.documents == "pack", **shape)

    def make_student(self) -> nn.Module:
        assert self.settings.student is not None
        dtype = torch.float64 if self.settings.dtype == "float64" else torch.float32
        student = load_model(self.settings.student, dtype=dtype, seed=self.settings.seed)
        self.vocab_size = student.vocab_size
        if self.settings.documents == "pack":
            check_isolation("the student", student)
        if self.settings.checkpoint_activations:
            model: Any = student.model
            enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
            enable({"use_reentrant": False})
        return student.train()

    def make_teacher(self) -> nn.Module:
        assert self.settings.teacher is not None
        teacher = load_model(self.settings.teacher, dtype="auto")
        if self.settings.documents == "pack":
            check_isolation("the teacher", teacher)
        return teacher

    def teacher_vocab_size(self) -> int:
        teacher = self.teacher
        assert isinstance(teacher, Causal)
        return teacher.vocab_size

    def save(self, directory: Path, manifest: dict[str, Any]) -> None:
        assert isinstance(self.student, Causal)
        save_model(self.student, self.tokenizer, directory, manifest)

    def load(self, directory: Path) -> nn.Module:
        """Return a model in its own data type. directory: also an id; one with a manifest is verified."""
        if (directory / MANIFEST).is_file():
            verify_manifest(directory)
        check_tokens(self.tokenizer, load_tokenizer(directory))
        model = load_model(directory, dtype="auto")
        if self.settings.documents == "pack":
            check_isolation("the model", model)
        return model

    def _step_flops(self) -> int | None:
        """Return the operations of a step, counted on one row: these models do not run on shapes alone.

        The backward of the student counts as two forwards.
        """
        if self._strategy == "fsdp2":
            self.lines.write("metrics: without flops_per_s, because shards of the student cannot be counted")
            return None
        tokens = self.batches.batch(1, 1).tokens
        flops = 0
        for model, passes in ((self.teacher, 1), (self.student, 3)):
            with FlopCounterMode(display=False) as counter, torch.no_grad(), torch.random.fork_rng():
                model(tokens[:1])
            flops += passes * int(counter.get_total_flops()) * len(tokens)
        return self.place.world_size * min(self.settings.accumulate, self.batches.batches) * flops


def _notes(chats: Chats, length: int) -> list[str]:
    number = len(chats.documents) + chats.empty
    cut = [f"data: {chats.cut} of {number} conversations are cut after {length} tokens"] if chats.cut else []
    empty = [f"data: {chats.empty} of {number} conversations have no token to predict there, and are left out"]
    return [*cut, *(empty if chats.empty else [])]
