"""The parts of a distillation of Hugging Face models on chats; `reference_trainer.pipeline.parts` has the protocols.

On a command line: `distill --teacher MODEL --student MODEL --data CHATS`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property, partial
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Unpack, cast

import torch
from torch import nn

from reference_trainer.config.kinds import import_object
from reference_trainer.config.settings import Settings
from reference_trainer.data.documents import (
    ChainedDocuments,
    Document,
    DocumentRows,
    join_rows,
    rows_of_documents,
)
from reference_trainer.data.mixtures import Mixture, integer_weights, read_weights
from reference_trainer.data.text import Batches, Rows
from reference_trainer.data.workers import usable_cpus
from reference_trainer.distillation.universal import Paired
from reference_trainer.errors import DataError, ModelFileError, OutputError, SettingError
from reference_trainer.huggingface.adapters import (
    Adapted,
    AdapterOptions,
    adapter_weights,
    add_adapter,
    add_adapter_to_skeleton,
    check_merge,
    frozen_weights,
    merge_adapter,
)
from reference_trainer.huggingface.attention import FLEX, isolate_documents
from reference_trainer.huggingface.chats import (
    Chats,
    ChatWriter,
    check_readable,
    digest_of,
    read_chats,
    read_template,
    size_of,
    write_chats,
)
from reference_trainer.huggingface.generation import check_generation, with_generated
from reference_trainer.huggingface.models import (
    Causal,
    Source,
    check_loading,
    check_place,
    check_tokens,
    compile_layers,
    digested_files,
    directory_of,
    download,
    load_model,
    load_shapes,
    load_skeleton,
    load_tokenizer,
    save_model,
    tokenizer_digests,
    vocab_size_of,
)
from reference_trainer.huggingface.pairs import PairedDocuments, check_pairs, read_pairs, write_pairs
from reference_trainer.models.loading import NamedTensors, is_skeleton, weights_of, when_loaded
from reference_trainer.pipeline.defaults import defaults_line, with_defaults
from reference_trainer.pipeline.distill import Distillation
from reference_trainer.pipeline.parts import (
    OPTIMIZERS,
    HeldBackEvaluation,
    Recipe,
    RunOptions,
    ScheduledOptimizer,
    shuffled_batches,
)
from reference_trainer.pipeline.served_teacher import ServedTeacher, served_teacher
from reference_trainer.pipeline.teachers import default_cache
from reference_trainer.storage.export import (
    MANIFEST,
    files_digest,
    has_weights,
    verify_manifest,
    weights_digest,
)
from reference_trainer.storage.produce_once import identity_digest, keep_within, used_entry
from reference_trainer.storage.teacher_outputs import SavedOutputs
from reference_trainer.storage.whole_weights import tensors_digest

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

GIB = 2**30
WORKERS_FROM_BYTES = 2**23
"""Smallest data file that worker processes tokenise if the settings have no number of workers."""


class HuggingFace(Distillation):
    """A distillation in which the data are chats, and teacher and student are causal models of transformers.

    A user can override methods in a subclass, as for `Distillation`; `settings.run.parts` then names the subclass.
    The held-back conversations are the file `settings.evaluation.data`, by default the last tenth of the
    training data; `settings.evaluation.rows` is the largest number of conversations to evaluate. The teacher keeps the
    data type of its files. A row is a padded conversation or, if `settings.data.documents` is `pack`, several
    conversations. If the student has weights, the `settings` of an instance include the defaults for such a student.

    Args:
        settings: The settings, with student, data, and teacher or stored outputs of a teacher.
        options: The other arguments of `Distillation`.

    Raises:
        SettingError: If settings are missing, or the tokenizers differ.
        ModelFileError: If a model cannot be loaded.
        DataError: If the data cannot be read.
    """

    def __init__(self, settings: Settings, **options: Unpack[RunOptions]) -> None:
        if settings.student.model is not None:  # defaults are read from its configuration
            check_place(Source(place=settings.student.model, revision=settings.student.revision))
        chosen = with_defaults(settings)
        self.defaults = defaults_line(settings, chosen)
        super().__init__(chosen, **options)

    def make_recipe(self, data: ChatData | None = None) -> Recipe:
        """Return the parts for causal models and chats.

        A subclass may replace parts of the result by `dataclasses.replace`.

        Args:
            data: The conversations, such as an instance of a subclass of `ChatData`; by default a new `ChatData`.
        """
        if data is None:
            data = ChatData(self)
        self._chat_data = data
        return Recipe(
            data=data,
            student=CausalStudent(self, data),
            teacher=CausalTeacher(self, data),
            optimizer=ScheduledOptimizer(self),
            evaluation=HeldBackEvaluation(self),
            export=CausalExport(self, data),
        )

    def make_rows(self, documents: Sequence[Document], first: int = 0) -> Rows:
        """Return the rows of conversations to train on or to hold back, numbered from `first`.

        Override this method to collate batches in another way.
        """
        settings = self.settings
        return rows_of_documents(
            documents,
            length=settings.data.length,
            batch_size=settings.data.batch_size,
            device=self.device,
            pack=settings.data.documents == "pack",
            first=first,
        )

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer of the student, with the chat template of the run."""
        return self._chat_data.tokenizer  # not `self.recipe.data`, which a subclass may replace


class ChatData:
    """The conversations of a run: to train on, and held back (the last tenth, or the file `evaluation.data`).

    Attributes:
        run: The run.
        tokenizer: The tokenizer of the student, with the chat template of the run.
    """

    unit = "token"
    largest_token = 0  # of the rows that saved models are evaluated on; set by `make_held_back`
    _continues = b""  # `Chats.continues` of the file that was read last
    _evaluated_count = 0  # number of held-back conversations to evaluate; 0 for all

    def __init__(self, run: HuggingFace) -> None:
        self.run = run
        # The largest token in the conversations read so far, with the tokenizer of the student and of the teacher.
        self._largest_of_student = self._largest_of_teacher = 0
        self._paired: list[PairedDocuments] = []  # in the order of their example numbers

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        settings = self.run.settings
        tokenizer = load_tokenizer(student_source(settings))
        if settings.data.chat_template is not None:
            tokenizer.chat_template = read_template(settings.data.chat_template)
        return tokenizer

    def make_batches(self) -> Batches:
        # 1. Check the settings and the tokenizers.
        run, settings = self.run, self.run.settings
        if settings.data.path is None or settings.student.model is None:
            raise SettingError("--student needs --data with a file of chats")
        check_student_settings(settings, settings.student.model)
        if settings.teacher.cross_tokenizer:
            check_cross_tokenizer(settings)
            run.lines.write(
                "teacher: it has its own tokens of the same text, so all logits of a batch are in memory at once, and "
                "metrics that need a common vocabulary, such as kl_at_1 and agreement, are left out"
            )
        elif settings.teacher.model is not None:
            hint = "; --cross-tokenizer compares the models by the text of their tokens"
            check_tokens(self.tokenizer, load_tokenizer(teacher_source(settings)), hint=hint)
        elif settings.teacher.outputs is None and settings.teacher.url is None:
            raise SettingError("--student needs --teacher with a Hugging Face model")
        if run.defaults is not None:
            run.lines.write(run.defaults)
        weights = {} if settings.data.mix is None else read_weights(settings.data.mix)
        weight = weights.pop(str(settings.data.path), Fraction(1))
        integers = integer_weights([weight, *weights.values()])
        # 2. Check all other inputs before tokenising, which may take long.
        check_generation(settings, run.place.world_size)
        is_padded = settings.data.documents != "pack"
        if settings.run.attn_implementation == FLEX and run.device.type == "cpu" and is_padded:
            raise SettingError(
                f"attn_implementation: {FLEX} cannot train on the CPU, because PyTorch has no backward pass of it "
                "there; use sdpa, or --documents pack, which computes each conversation separately on the CPU"
            )
        if settings.optimizer.name not in OPTIMIZERS:
            import_object("optimizer", settings.optimizer.name)
        check_loading(student_source(settings))
        if settings.teacher.model is not None:
            check_loading(teacher_source(settings))
        if settings.teacher.outputs is not None:
            SavedOutputs(settings.teacher.outputs)
        for path in (settings.data.path, settings.evaluation.data, *map(Path, weights)):
            if path is not None:
                check_readable(path)
        # 3. Read the conversations, and divide them into rows to train on and held-back rows.
        documents = self._documents(settings.data.path)
        cut = self._cut(documents) if settings.evaluation.data is None else len(documents)
        training = self._rows(documents[:cut])
        order = None
        if settings.data.mix is not None:
            rows_by_file = [training]
            for number, file in enumerate(weights, 1):
                rows_by_file.append(self._rows(self._documents(Path(file), f"mix_{number}")))
            run.digests["mix"] = ":".join(map(str, integers))
            order = Mixture(
                sizes=[len(rows) for rows in rows_by_file], weights=integers, batch_size=settings.data.batch_size
            )
            if not all(isinstance(rows, DocumentRows) for rows in rows_by_file):
                raise SettingError(
                    f"--mix needs rows of the class DocumentRows, and make_rows of {type(run).__name__} returns others"
                )
            training = join_rows(cast(list[DocumentRows], rows_by_file))
            run.lines.write(_mixture_line([settings.data.path, *weights], order))
        run.held_back = self._rows(self._evaluated_documents(documents[cut:]), first=len(training))
        return with_generated(run, shuffled_batches(run, training, order))

    def make_held_back(self, *, whole: bool) -> None:
        run, settings = self.run, self.run.settings
        if settings.data.path is None:
            raise SettingError("Hugging Face models need --data with a file of chats")
        # A teacher of custom parts must have logits for `run.vocab_size` tokens. Training sets this number when it
        # creates the student, which an evaluation does not do.
        if "make_teacher" in run.replaced and settings.student.model is not None:
            run.vocab_size = vocab_size_of(student_source(settings))
        if whole:
            documents = self._documents(settings.data.path)
        elif settings.evaluation.data is not None:
            documents = self._evaluated_documents(())
        else:
            documents = self._documents(settings.data.path)
            documents = self._evaluated_documents(documents[self._cut(documents) :])
        self.largest_token = max(int(document.tokens.max()) for document in documents)
        run.held_back = self._rows(documents)

    def evaluated_part(self, *, whole: bool) -> str:
        part = "whole" if whole or self.run.settings.evaluation.data is not None else "held back"
        if whole or not self._evaluated_count:
            return part
        return f"{part}, {self._evaluated_count} conversations"

    def check_size(self, model: Causal, name: str) -> None:
        """Raise `DataError` if the data has a token that is not in the vocabulary of the model.

        Args:
            model: The model.
            name: "student" or "teacher".
        """
        has_other_tokenizer = name == "teacher" and self.run.settings.teacher.cross_tokenizer
        largest = self._largest_of_teacher if has_other_tokenizer else self._largest_of_student
        if largest >= model.vocab_size:
            raise DataError(
                f"the data has token {largest}, but the vocabulary of the {name} has only {model.vocab_size} tokens"
            )

    def _documents(self, data: Path, name: str = "data") -> Sequence[Document]:
        """Return the documents of a file; with `turns`, a conversation may have several documents.

        Store the digest of the file as "{name}_sha256" in `run.digests`.

        Args:
            data: The file.
            name: "data", "eval_data" or "mix_N".
        """
        chats, digests, workers = self._read(data, self.tokenizer)
        tokenizer_names = ("tokenizer_sha256", "chat_template_sha256")
        self.run.digests[f"{name}_sha256"] = digests["data_sha256"]
        self.run.digests |= {key: digests[key] for key in tokenizer_names}
        self._largest_of_student = max(self._largest_of_student, chats.largest)
        self._continues = chats.continues
        if not self.run.settings.teacher.cross_tokenizer:
            return chats.documents
        # The same conversations in the tokens of the teacher, and the groups of tokens of equal text.
        teacher_chats, teacher_digests, _ = self._read(data, self._teacher_tokenizer, "teacher tokenizer: ")
        check_pairs(data, chats, teacher_chats)
        self.run.digests |= {f"teacher_{key}": teacher_digests[key] for key in tokenizer_names}
        self._largest_of_teacher = max(self._largest_of_teacher, teacher_chats.largest)
        identity = {"student": digests, "teacher": teacher_digests, "length": self.run.settings.data.length}
        identity |= {"pairs": 1, "transformers": version("transformers")}  # increase "pairs" if `write_pairs` changes
        tokenizers = (self.tokenizer, self._teacher_tokenizer)
        entry = self._entry(identity, partial(write_pairs, chats, teacher_chats, tokenizers, workers=workers))
        documents, lines = read_pairs(entry, chats, teacher_chats)
        for line in lines:
            self.run.lines.write(f"data: {line}")
        return documents

    @cached_property
    def _teacher_tokenizer(self) -> object:
        return load_tokenizer(teacher_source(self.run.settings))

    def _read(self, data: Path, tokenizer: object, prefix: str = "") -> tuple[Chats, dict[str, str], int]:
        """Tokenise the conversations of a file, or find them in the cache.

        Args:
            data: The file.
            tokenizer: The tokenizer.
            prefix: The beginning of log lines about these conversations, after "data: ".

        Returns:
            The conversations; the digests of the file, the tokenizer and the template; the number of worker processes.
        """
        settings = self.run.settings
        digests = {"data_sha256": digest_of(data), **tokenizer_digests(tokenizer)}
        turns, options = settings.data.turns, json.loads(settings.data.template_options or "{}")
        if options or turns != "every":  # both change tokens or labels, like another template
            template = {"template": digests["chat_template_sha256"], "options": options, "turns": turns}
            digests["chat_template_sha256"] = identity_digest(template)
        workers = settings.data.workers
        if workers is None:
            workers = usable_cpus() if size_of(data) >= WORKERS_FROM_BYTES else 0
        writer = ChatWriter(tokenizer, turns=turns, options=options)
        chats = read_chats(self._tokenized(data, digests, writer, workers, prefix))
        for line in _notes(chats, settings.data.length, keeps_empty=settings.teacher.cross_tokenizer):
            self.run.lines.write(f"data: {prefix}{line}")
        return chats, digests, workers

    def _evaluated_documents(self, held_back: Sequence[Document]) -> Sequence[Document]:
        """Return the documents to evaluate: at most `eval_rows`, evenly spaced, of `eval_data` or of `held_back`."""
        run, data = self.run, self.run.settings.evaluation.data
        most = run.settings.evaluation.rows  # 0 for all
        documents = held_back if data is None else self._documents(data, "eval_data")
        if not most or len(documents) <= most:
            return documents
        run.lines.write(f"data: {most} of {len(documents)} held-back conversations are evaluated; see --eval-rows")
        self._evaluated_count = most
        run.digests["evaluated"] = f"{most} of {len(documents)}"  # a resumed run compares it with its checkpoint
        numbers = [number * len(documents) // most for number in range(most)]

        def select(stored: Sequence[Document]) -> Sequence[Document]:
            # Slices of stored documents read nothing; an index would read the document immediately.
            return ChainedDocuments([stored[number : number + 1] for number in numbers])

        if isinstance(documents, PairedDocuments):
            return PairedDocuments(select(documents.student), select(documents.teacher), select(documents.flat_groups))
        return select(documents)

    def _tokenized(self, data: Path, digests: Mapping[str, str], writer: ChatWriter, workers: int, prefix: str) -> Path:
        """Return the directory with the tokens of the data; tokenise the data if the cache has no such directory."""
        # The identity has everything that tokens and labels depend on. Increase "format" when the conversion changes.
        run, settings = self.run, self.run.settings
        identity = {**digests, "length": settings.data.length, "format": 4, "transformers": version("transformers")}
        identity["special"] = {name: str(token) for name, token in writer.tokenizer.special_tokens_map.items()}
        if settings.data.skip_invalid_rows:
            identity["skips_invalid"] = True
        keeps_empty = settings.teacher.cross_tokenizer
        if keeps_empty:
            identity["keeps_empty"] = True

        def write(place: Path) -> None:
            write_chats(
                data,
                writer,
                settings.data.length,
                place,
                note=lambda line: run.lines.write(f"data: {line}"),
                workers=workers,
                skips_invalid=settings.data.skip_invalid_rows,
                keeps_empty=keeps_empty,
            )
            if digest_of(data) != digests["data_sha256"]:
                raise DataError(f"{data} was changed while it was read; start again")

        run.lines.write(f"data: {prefix}the tokens of {data} are kept in {self._cache}")
        return self._entry(identity, write)

    @cached_property
    def _cache(self) -> Path:
        """The cache directory of tokens; for a smoke run, a temporary directory."""
        run, settings = self.run, self.run.settings
        if settings.run.smoke is not None:
            return Path(run.enter_context(TemporaryDirectory()))
        return settings.data.cache or default_cache("--data-cache")

    def _entry(self, identity: Mapping[str, object], write: Callable[[Path], None]) -> Path:
        """Return the cached directory with this identity; call `write` to fill it if it does not exist."""
        run, cache, limit = self.run, self._cache, self.run.settings.data.cache_gib
        try:
            entry = run.enter_context(used_entry(cache, "chats", identity, write))
        except OutputError as error:
            raise OutputError(f"{error}; use --data-cache to choose another directory") from error
        if limit:
            for line in keep_within(cache, "chats", limit * GIB):
                run.lines.write(f"data: {line}")
        return entry

    def _cut(self, documents: Sequence[Document]) -> int:
        """Return the number of documents to train on. The rest is held back."""
        # All documents of a conversation stay on one side of the cut.
        cut = len(documents) * 9 // 10
        while cut and self._continues[cut]:  # the document at the cut continues the conversation of the one before
            cut -= 1
        if not cut:
            raise DataError(
                f"{self.run.settings.data.path} has one conversation to predict; expected at least two, because one is "
                f"held back, or a file with held-back conversations for --eval-data"
            )
        return cut

    def _rows(self, documents: Sequence[Document], first: int = 0) -> Rows:
        """Return the rows of `make_rows`; for two tokenizers, also give the pairs of documents to the run."""
        if isinstance(documents, PairedDocuments):
            self._paired.append(documents)
            self.run.pairs = cast("Sequence[Paired]", ChainedDocuments(self._paired))
        return self.run.make_rows(documents, first)


def student_source(settings: Settings) -> Source:
    """Return the student that the settings name."""
    assert settings.student.model is not None
    return Source(
        place=settings.student.model,
        revision=settings.student.revision,
        trust_remote_code=settings.run.trust_remote_code,
        attention=settings.run.attn_implementation,
    )


def teacher_source(settings: Settings) -> Source:
    """Return the teacher that the settings name."""
    assert settings.teacher.model is not None
    return Source(
        place=settings.teacher.model,
        revision=settings.teacher.revision,
        trust_remote_code=settings.run.trust_remote_code,
        attention=settings.run.attn_implementation,
        quantization=settings.teacher.quantization,
        device_map=settings.teacher.device_map,
    )


def check_cross_tokenizer(settings: Settings) -> None:
    """Raise `SettingError` if other settings conflict with `cross_tokenizer`."""
    loss, teacher = settings.objective, settings.teacher
    needs = {
        "a teacher: --teacher with a Hugging Face model": teacher.model is not None,
        "no teacher_outputs, since stored outputs belong to the tokens of the student": teacher.outputs is None,
        "no teacher_url, since the server must have the tokens of the student": teacher.url is None,
        "no share_vocabulary, since tokens are not compared by their number": teacher.share_vocabulary is None,
        "on_policy 0, since generated answers are not in the data": not (loss.on_policy or loss.on_policy_end),
        "padded rows, not documents pack": settings.data.documents != "pack",
        "feature_weight 0, since the hidden states of the models belong to different tokens": not (
            loss.feature_weight or loss.feature_weight_end
        ),
    }
    for need, is_met in needs.items():
        if not is_met:
            raise SettingError(f"conflicting settings: 'cross_tokenizer' needs {need}")


def check_student_settings(settings: Settings, place: Path) -> None:
    """Raise `SettingError` for an adapter of a student without weights, and for --weights that --dtype excludes."""
    if settings.student.lora is not None and place.is_dir() and not has_weights(place):
        raise SettingError(f"--lora needs a trained student: {place} has a configuration and no weights")
    if settings.student.weights == "bfloat16" and settings.run.dtype != "bfloat16":
        raise SettingError(f"--weights bfloat16 needs --dtype bfloat16; --dtype is {settings.run.dtype}")


def _load_skeleton(run: HuggingFace, source: Source, dtype: object) -> Causal | None:
    """Let one process of each machine download the files, then return the result of `load_skeleton`."""
    directory = Path(str(run.ranks.on_each_machine(lambda: os.fspath(download(source)))))
    return load_skeleton(source, dtype=dtype, directory=directory)


def _isolate_and_compile(name: str, model: Causal, settings: Settings, note: Callable[[str], object]) -> None:
    """Isolate packed documents and compile layers, if the settings require it; the model must have its weights."""
    if settings.data.documents == "pack":
        with next(model.parameters()).device:  # the model may be on a device already
            isolate_documents(name, model, note)
    if settings.run.compile:
        compile_layers(name, model)


class CausalStudent:
    """The causal model that the settings name, with an adapter if `lora` is set."""

    def __init__(self, run: HuggingFace, data: ChatData) -> None:
        self.run, self._data = run, data

    def make(self) -> nn.Module:
        run, settings, place = self.run, self.run.settings, self.run.settings.student.model
        assert place is not None
        check_student_settings(settings, place)
        name = "float64" if settings.run.dtype == "float64" else settings.student.weights
        source, dtype = student_source(settings), getattr(torch, name)
        # 1. The model. A sharded student begins as a skeleton if its files allow it; its weights are loaded later.
        skeleton = self._make_skeleton(source, dtype) if run.is_student_sharded else None
        student = skeleton or load_model(source, dtype=dtype, seed=settings.run.seed)
        run.vocab_size = student.vocab_size
        self._data.check_size(student, "student")
        if settings.student.lora is None and getattr(student.model, "is_quantized", False):
            raise SettingError(
                f"--student {place} has quantized weights, which cannot be trained; use --lora, or a model without "
                "quantization"
            )
        # 2. The adapter. A skeleton has it already.
        if settings.student.lora is not None:
            student = skeleton or add_adapter(student, place, **self._adapter_options)
            if settings.student.lora_merge:
                check_merge(student)
            # The digest of a skeleton reads files, so only one rank of each machine computes it.
            digest = partial(tensors_digest, frozen_weights(student))
            run.digests["base_sha256"] = str(run.ranks.on_each_machine(digest) if skeleton is not None else digest())
        # 3. Options of the forward pass. `_isolate_and_compile` runs the model, so a skeleton must be loaded first.
        if settings.student.checkpoint_activations:
            model = student.model
            enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
            enable({"use_reentrant": False})
        if settings.run.compile:
            torch.compiler.reset()  # graphs of an earlier run in this process would change what is compiled
            run.lines.write(
                "compile: the first steps also compile the layers of student and teacher; rates and projected times "
                "include this time if they include these steps"
            )
        when_loaded(student, partial(_isolate_and_compile, "the student", student, settings, run.lines.write))
        return student.train()

    def _make_skeleton(self, source: Source, dtype: torch.dtype) -> Causal | None:
        """Return the student as a skeleton; None if every rank must load the whole student first."""
        base = _load_skeleton(self.run, source, dtype)
        if base is None or self.run.settings.student.lora is None:
            return base
        return add_adapter_to_skeleton(base, source.place, **self._adapter_options)

    @property
    def _adapter_options(self) -> AdapterOptions:
        settings = self.run.settings
        assert settings.student.lora is not None
        options = json.loads(settings.student.lora_options or "{}")
        return {"rank": settings.student.lora, "options": options, "seed": settings.run.seed}

    def shapes(self) -> nn.Module:
        """Return the student on the meta device, from its configuration alone."""
        settings = self.run.settings
        name = "float64" if settings.run.dtype == "float64" else settings.student.weights
        source = student_source(settings)
        student = load_shapes(source, dtype=getattr(torch, name))
        self.run.vocab_size = student.vocab_size
        if settings.student.lora is None:
            return student
        with torch.device("meta"):
            student = add_adapter(student, source.place, **self._adapter_options)
        # peft creates the adapter in the data type of a float64 base, but not on the meta device.
        return student.double() if name == "float64" else student


class CausalTeacher:
    """The causal model that the settings name, in the data type of its files, or a model behind a server."""

    _served: ServedTeacher | None = None

    def __init__(self, run: HuggingFace, data: ChatData) -> None:
        self.run, self._data = run, data

    def make(self) -> nn.Module:
        run, settings = self.run, self.run.settings
        if settings.teacher.url is not None:
            run.served = self._served = served_teacher(settings, run.vocab_size)
            run.digests["served_teacher"] = json.dumps(self._served.identity)
            if settings.teacher.model is None:
                run.lines.write(
                    "teacher: the tokenizer of --teacher-url is not compared; name its model by --teacher to compare it"
                )
            return nn.Module()
        assert settings.teacher.model is not None
        if settings.teacher.quantization is not None and settings.teacher.shard:
            raise SettingError(
                "conflicting settings: 'quantization' and 'shard_teacher' are given; expected one of them: quantized "
                "weights cannot be divided among ranks"
            )
        source = teacher_source(settings)
        if settings.teacher.quantization is not None and settings.teacher.device_map is None:
            # Some kinds of quantized weights cannot move to another device after loading.
            source = replace(source, device_map={"": str(run.device)})
        in_parts = run.is_sharded and settings.teacher.device_map is None
        skeleton = _load_skeleton(run, source, "auto") if in_parts else None
        teacher = skeleton or load_model(source, dtype="auto")
        self._data.check_size(teacher, "teacher")
        if run.is_sharded and getattr(teacher.model, "is_quantized", False):
            raise SettingError(
                f"--teacher {settings.teacher.model} has quantized weights, which cannot be divided among ranks; leave "
                "out --shard-teacher"
            )
        shares = settings.teacher.share_vocabulary is not None or settings.teacher.cross_tokenizer
        if teacher.vocab_size != run.vocab_size and not shares:
            raise SettingError(
                f"the teacher has logits of {teacher.vocab_size} tokens and the student of {run.vocab_size}; use "
                f"--share-vocabulary to share the tokens that both have"
            )
        when_loaded(teacher, partial(_isolate_and_compile, "the teacher", teacher, settings, run.lines.write))
        return teacher

    def shapes(self) -> nn.Module:
        """Return the teacher on the meta device, from its configuration alone."""
        if self.run.settings.teacher.model is None:
            raise SettingError("--student needs --teacher with a Hugging Face model")
        return load_shapes(teacher_source(self.run.settings), dtype="auto")

    def digest_of_files(self) -> str | None:
        if self._served is not None:
            return self._served.digest()
        settings, ranks = self.run.settings, self.run.ranks
        source = teacher_source(settings)
        digest = str(ranks.on_each_machine(lambda: files_digest(digested_files(directory_of(source)))))
        if settings.teacher.quantization is None:
            return digest
        return identity_digest({"files": digest, "quantization": json.loads(settings.teacher.quantization)})

    def vocab_size(self) -> int:
        teacher = self.run.teacher
        assert isinstance(teacher, Causal)
        return teacher.vocab_size


class CausalExport:
    """A directory that `from_pretrained` reads: weights or an adapter, configuration, tokenizer, manifest."""

    has_own_format = True

    def __init__(self, run: HuggingFace, data: ChatData) -> None:
        self.run, self._data = run, data

    def check_student(self) -> None:
        """Accept every student, because `save` verifies the files that it writes."""

    def save(self, directory: Path, manifest: dict[str, object]) -> None:
        run, student = self.run, self.run.student
        assert isinstance(student, Causal)
        merge = merge_adapter if run.settings.student.lora_merge and isinstance(student, Adapted) else None
        # Merging changes the student in place, so replace it by the model that was written.
        run.student = save_model(student, self._data.tokenizer, directory, manifest, merge=merge)

    def load(self, directory: Path) -> NamedTensors:
        """Return the weights of a model or adapter of transformers, whose tokenizer must be the student's.

        If the student is a skeleton, the weights of a model are read when they are indexed.

        Args:
            directory: A directory, or an id of the hub.
        """
        student = self.run.student
        self._check_saved(directory, "model to begin with")
        if isinstance(student, Adapted):
            return adapter_weights(directory, like=student)
        source, dtype = self._source(directory), next(student.parameters()).dtype
        skeleton = _load_skeleton(self.run, source, dtype) if is_skeleton(student) else None
        return weights_of(skeleton or load_model(source, dtype=dtype))

    def saved_model(self, directory: Path) -> nn.Module:
        """Return a model or adapter of any shape, in the data type of its files, from a directory or an id."""
        self._check_saved(directory, "model")
        model = load_model(self._source(directory), dtype="auto")
        if self.run.settings.data.documents == "pack":
            isolate_documents("the model", model, self.run.lines.write)
        return model

    def saved_digest(self, path: Path, module: nn.Module) -> str:
        try:
            return files_digest(digested_files(directory_of(path)))
        except ModelFileError:  # a checkpoint or an adapter: the digest is of all weights, with the base model
            return weights_digest(module.model if isinstance(module, Causal) else module)

    def _check_saved(self, directory: Path, owner: str) -> None:
        """Raise `ModelFileError` if the files were changed, `SettingError` if the tokenizer is not the student's."""
        if os.path.isfile(directory / MANIFEST):  # noqa: PTH113  (Path.is_file raises for a name that is too long)
            verify_manifest(directory)
        check_tokens(self._data.tokenizer, load_tokenizer(self._source(directory)), owner)

    def _source(self, directory: Path) -> Source:
        return Source(place=directory, trust_remote_code=self.run.settings.run.trust_remote_code)


def _mixture_line(paths: Sequence[Path | str], mixture: Mixture) -> str:
    """Return a log line with the share and the size of each source."""
    total, shares = sum(mixture.weights), zip(paths, mixture.sizes, mixture.weights, strict=True)
    parts = [f"{weight / total:.1%} of {path} ({size} rows)" for path, size, weight in shares]
    return f"data: an epoch has {len(mixture)} rows: {', '.join(parts)}"


def _notes(chats: Chats, length: int, *, keeps_empty: bool) -> list[str]:
    """Return texts about conversations that are cut or have nothing to predict, and the notes of the writer."""
    number = len(chats.documents) + (0 if keeps_empty else chats.empty)
    lines = []
    if chats.cut:
        lines.append(f"{chats.cut} of {number} conversations are cut after {length} tokens")
    if chats.empty:
        result = f"in {length} tokens, and are {'kept without a loss' if keeps_empty else 'left out'}"
        lines.append(f"{chats.empty} of {number} conversations have no token to predict {result}")
    return [*lines, *chats.notes]
