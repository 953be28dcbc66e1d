"""A distillation of Hugging Face models on chats: `distill --teacher MODEL --student MODEL --data CHATS`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from reference_trainer.config.settings import Settings
from reference_trainer.data.batches import Document
from reference_trainer.data.documents import rows_of_documents
from reference_trainer.data.epochs import Batches, ShuffledBatches
from reference_trainer.data.text import Rows
from reference_trainer.errors import DataError, ModelFileError, OutputError, SettingError
from reference_trainer.huggingface.adapters import (
    Adapted,
    adapter_weights,
    add_adapter,
    check_merge,
    frozen_weights,
    merge_adapter,
)
from reference_trainer.huggingface.attention import isolate_documents
from reference_trainer.huggingface.chats import Chats, ChatWriter, read_chats, read_template, write_chats
from reference_trainer.huggingface.models import (
    Causal,
    check_tokens,
    directory_of,
    load_model,
    load_tokenizer,
    save_model,
    tokenizer_digests,
    vocab_size_of,
)
from reference_trainer.huggingface.sources import digest_of
from reference_trainer.pipeline.distill import Distillation
from reference_trainer.pipeline.own import with_default_rate
from reference_trainer.pipeline.teachers import default_cache
from reference_trainer.storage.cache_limit import keep_within, used_entry
from reference_trainer.storage.export import (
    MANIFEST,
    files_digest,
    has_weights,
    verify_manifest,
    weight_files,
    weights_digest,
)
from reference_trainer.storage.produce_once import identity_digest
from reference_trainer.storage.whole_weights import tensors_digest

__all__ = ["HuggingFace"]

GIB = 2**30


class HuggingFace(Distillation):
    """Teacher and student are causal models of transformers, the data chats; `settings.student` names the student.

    A subclass replaces what is its own, as of `Distillation`, and is named by `settings.parts`. The last tenth of the
    conversations is held back, unless `settings.eval_data` has others; `settings.eval_rows` of them are evaluated. The
    teacher keeps the data type of its files. Rows are conversations, padded, or several of them with `documents`
    `pack`. The `settings` of an instance have the default learning rate of a pretrained student.

    Args:
        settings: With student, data, and teacher or outputs of one.
        options: The other arguments of `Distillation`.

    Raises:
        SettingError: For missing settings, and for tokenizers that differ.
        ModelFileError: For a model that cannot be loaded.
        DataError: For data that cannot be read.
    """

    _largest_token = 0  # of the data
    _continues = b""
    _chosen = 0  # of the conversations that are held back; 0 for all

    def __init__(self, settings: Settings, **options: Any) -> None:
        super().__init__(with_default_rate(settings), **options)
        self._has_default_rate = self.settings is not settings

    def make_batches(self) -> Batches:
        settings = self.settings
        if settings.data is None or settings.student is None:
            raise SettingError("--student needs --data with a file of chats")
        self._check_student(settings.student)
        if settings.teacher is not None:
            check_tokens(self.tokenizer, load_tokenizer(settings.teacher))
        elif settings.teacher_outputs is None:
            raise SettingError("--student needs --teacher with a Hugging Face model")
        if self._has_default_rate:
            self.lines.write(f"student: the learning rate is {settings.lr:g}, as it has weights; use --lr for another")
        documents = self._documents(settings.data)
        cut = self._cut(documents) if settings.eval_data is None else len(documents)
        training = self._rows(documents[:cut])
        self.held_back = self._rows(self._evaluated_documents(documents[cut:]), first=len(training))
        place = {"rank": self.place.rank, "world_size": self.place.world_size}
        return ShuffledBatches(sequences=training, seed=settings.seed, **place)

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer of the student, with the chat template of the run."""
        assert self.settings.student is not None
        tokenizer = load_tokenizer(self.settings.student)
        if self.settings.chat_template is not None:
            tokenizer.chat_template = read_template(self.settings.chat_template)
        return tokenizer

    def make_held_back(self, *, whole: bool) -> None:
        if self.settings.data is None:
            raise SettingError("Hugging Face models need --data with a file of chats")
        if self.has_own_teacher and self.settings.student is not None:  # a teacher is compared with the student
            self.vocab_size = vocab_size_of(self.settings.student)
        if whole or self.settings.eval_data is None:
            documents = self._documents(self.settings.data)
        if not whole:
            held_back = () if self.settings.eval_data is not None else documents[self._cut(documents) :]
            documents = self._evaluated_documents(held_back)
        self._largest_byte = max(int(document.tokens.max()) for document in documents)
        self.held_back = self._rows(documents)

    @property
    def has_own_teacher(self) -> bool:
        return type(self).make_teacher is not HuggingFace.make_teacher

    def evaluated_part(self, *, whole: bool) -> str:
        part = super().evaluated_part(whole=whole or self.settings.eval_data is not None)
        return part if whole or not self._chosen else f"{part}, {self._chosen} conversations"

    def _documents(self, data: Path, name: str = "data") -> Sequence[Document]:
        """Return the conversations of a file, and keep its digest, as that of `data` or of `eval_data`."""
        digests = {"data_sha256": digest_of(data), **tokenizer_digests(self.tokenizer)}
        turns, options = self.settings.turns, json.loads(self.settings.template_options or "{}")
        if options or turns != "every":  # which change the tokens or labels as another template does
            template = {"template": digests["chat_template_sha256"], "options": options, "turns": turns}
            digests["chat_template_sha256"] = identity_digest(template)
        chats = read_chats(self._tokenized(data, digests, ChatWriter(self.tokenizer, turns=turns, options=options)))
        for line in _notes(chats, self.settings.length):
            self.lines.write(line)
        self.digests |= {f"{name}_sha256": digests.pop("data_sha256")} | digests
        self._largest_token = max(self._largest_token, chats.largest)
        self._continues = chats.continues
        return chats.documents

    def _evaluated_documents(self, held_back: Sequence[Document]) -> Sequence[Document]:
        """Return what is evaluated: at most `eval_rows` of `eval_data`, or else of `held_back`, evenly spaced."""
        most, data = self.settings.eval_rows, self.settings.eval_data
        documents = held_back if data is None else self._documents(data, "eval_data")
        if not most or len(documents) <= most:
            return documents
        self.lines.write(f"data: {most} of {len(documents)} held-back conversations are evaluated; see --eval-rows")
        self._chosen = most
        self.digests["evaluated"] = f"{most} of {len(documents)}"  # a resumed run compares its best step with others
        return documents[:: len(documents) // most][:most]

    def _tokenized(self, data: Path, digests: Mapping[str, str], writer: ChatWriter) -> Path:
        """Return the directory with the tokens of the data, which are made once; a smoke run forgets them."""
        length, tokenizer = self.settings.length, self.tokenizer
        identity = {**digests, "length": length, "format": 3, "transformers": version("transformers")}
        identity["special"] = {name: str(token) for name, token in tokenizer.special_tokens_map.items()}

        def write(place: Path) -> None:
            write_chats(data, writer, length, place)
            if digest_of(data) != digests["data_sha256"]:
                raise DataError(f"{data} was changed while it was read; start again")

        if self.settings.smoke is not None:
            cache = Path(self.enter_context(TemporaryDirectory()))
        else:
            cache = self.settings.data_cache or default_cache("--data-cache")
        self.lines.write(f"data: the tokens of {data} are made once, and kept in {cache}")
        try:
            entry = self.enter_context(used_entry(cache, "chats", identity, write))
        except OutputError as error:
            raise OutputError(f"{error}; use --data-cache to choose another directory") from error
        for line in keep_within(cache, "chats", limit * GIB) if (limit := self.settings.data_cache_gib) else []:
            self.lines.write(f"data: {line}")
        return entry

    def _cut(self, documents: Sequence[Document]) -> int:
        """Return the number of documents to train on; the others, whole conversations, are held back."""
        cut = len(documents) * 9 // 10
        while cut and self._continues[cut]:
            cut -= 1
        if not cut:
            what = f"{self.settings.data} has one conversation to predict; expected two, as one is held back"
            raise DataError(f"{what}, or other ones in --eval-data")
        return cut

    def _rows(self, documents: Sequence[Document], first: int = 0) -> Rows:
        settings = self.settings
        shape: Any = {"length": settings.length, "batch_size": settings.batch_size, "device": self.device}
        shape["pack"] = settings.documents == "pack"
        return rows_of_documents(documents, **shape, first=first)

    def make_student(self) -> nn.Module:
        student = self._base()
        self.vocab_size = student.vocab_size
        self._check_size(student, "student")
        if self.settings.documents == "pack":
            isolate_documents("the student", student, self.lines.write)
        if self.settings.lora is not None:
            student = self._adapted(student, self.settings.lora)
        if self.settings.checkpoint_activations:
            model: Any = student.model
            enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
            enable({"use_reentrant": False})
        return student.train()

    def _base(self) -> Causal:
        """Return the student that is named."""
        settings, place = self.settings, self.settings.student
        assert place is not None
        self._check_student(place)
        name = "float64" if settings.dtype == "float64" else settings.weights
        return load_model(place, dtype=getattr(torch, name), seed=settings.seed)

    def _check_student(self, place: Path) -> None:
        """Raise `SettingError` for an adapter of random weights, and for weights that do not fit --dtype."""
        settings = self.settings
        if settings.lora is not None and place.is_dir() and not has_weights(place):
            raise SettingError(f"--lora needs a trained student: {place} has a configuration and no weights")
        if settings.weights == "bfloat16" != settings.dtype:
            raise SettingError(
                f"--weights bfloat16 needs --dtype bfloat16, in which they compute; it is {settings.dtype}"
            )

    def _adapted(self, base: Causal, rank: int) -> Adapted:
        settings = self.settings
        assert settings.student is not None
        options = json.loads(settings.lora_options or "{}")
        student = add_adapter(base, settings.student, rank=rank, options=options, seed=settings.seed)
        if settings.lora_merge:
            check_merge(student)
        self.digests["base_sha256"] = tensors_digest(frozen_weights(student))
        return student

    def make_teacher(self) -> nn.Module:
        assert self.settings.teacher is not None
        teacher = load_model(self.settings.teacher, dtype="auto", device_map=self.settings.teacher_device_map)
        self._check_size(teacher, "teacher")
        if teacher.vocab_size != self.vocab_size and self.settings.share_vocabulary is None:
            raise SettingError(
                f"the teacher has logits of {teacher.vocab_size} tokens and the student of {self.vocab_size}; use "
                f"--share-vocabulary to share the tokens that both have"
            )
        if self.settings.documents == "pack":
            isolate_documents("the teacher", teacher, self.lines.write)
        return teacher

    def _check_size(self, model: Causal, name: str) -> None:
        if self._largest_token >= model.vocab_size:
            what = f"the data has token {self._largest_token}, and the {name} has {model.vocab_size} tokens"
            raise DataError(f"{what}; expected more")

    def teacher_digest(self) -> str:
        teacher = self.settings.teacher
        assert teacher is not None
        return str(self.ranks.on_each_machine(lambda: files_digest(weight_files(directory_of(teacher)))))

    def teacher_vocab_size(self) -> int:
        teacher = self.teacher
        assert isinstance(teacher, Causal)
        return teacher.vocab_size

    def load(self, directory: Path) -> Mapping[str, Tensor]:
        """Return the weights of a model or adapter of transformers, a directory or an id, with the student's tokens."""
        self._check_saved(directory, "model to begin with")
        if isinstance(self.student, Adapted):
            return adapter_weights(directory, like=self.student)
        weights: dict[str, Tensor] = load_model(directory, dtype=next(self.student.parameters()).dtype).state_dict()
        return weights

    def save(self, directory: Path, manifest: dict[str, Any]) -> None:
        assert isinstance(self.student, Causal)
        options: Any = (
            {"merge": merge_adapter} if self.settings.lora_merge and isinstance(self.student, Adapted) else {}
        )
        self.student = save_model(self.student, self.tokenizer, directory, manifest, **options)

    def saved_model(self, directory: Path) -> nn.Module:
        """Return a model or adapter in its own data type, of any shapes. directory: also an id."""
        self._check_saved(directory, "model")
        model = load_model(directory, dtype="auto")
        if self.settings.documents == "pack":
            isolate_documents("the model", model, self.lines.write)
        return model

    def saved_digest(self, path: Path, module: nn.Module) -> str:
        try:
            return files_digest(weight_files(directory_of(path)))
        except ModelFileError:  # a checkpoint or an adapter; its digest has the base, too
            return weights_digest(module.model if isinstance(module, Causal) else module)

    def _check_saved(self, directory: Path, what: str) -> None:
        if os.path.isfile(directory / MANIFEST):  # noqa: PTH113  (Path.is_file raises for a name that is too long)
            verify_manifest(directory)
        check_tokens(self.tokenizer, load_tokenizer(directory), what)


def _notes(chats: Chats, length: int) -> list[str]:
    number = len(chats.documents) + chats.empty
    cut = [f"data: {chats.cut} of {number} conversations are cut after {length} tokens"] if chats.cut else []
    empty = [f"data: {chats.empty} of {number} conversations have no token to predict there, and are left out"]
    return [*cut, *(empty if chats.empty else []), *(f"data: {note}" for note in chats.notes)]
