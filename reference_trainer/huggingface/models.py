"""Causal models of transformers as teacher and student: loaded, called with packed rows, and saved."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from reference_trainer.distillation.packed_rows import packed_rows
from reference_trainer.errors import ModelFileError, OutputError, SettingError, first_line, similar_path
from reference_trainer.huggingface.attention import equal_logits, takes_documents
from reference_trainer.storage.export import CONFIG, MANIFEST, MODEL_FILES, has_weights
from reference_trainer.storage.files import atomic_write, file_digest

Loaded = TypeVar("Loaded")
ID = re.compile(r"[\w.-]+(/[\w.-]+)?", re.ASCII)
"""A name of a model on the hub, NAME or OWNER/NAME; a path with more parts is none."""
READ_BACK = 1e-4
"""Largest difference of a logit of an exported model, relative to the largest one, from those of the trained model."""
KEPT = "its files are removed, and the checkpoints stay"


class Causal(nn.Module):
    """A causal model of transformers with the interface of this trainer: tokens [B, T], and segments of packed rows.

    Positions start again in every segment, from which transformers derives the attention within a document. Padding
    follows the documents of a row, where causal attention cannot see it, so there is no attention mask.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    @property
    def vocab_size(self) -> int:
        config: Any = self.model.config
        return int(config.get_text_config().vocab_size)

    def get_output_embeddings(self) -> Any:
        """Return the output layer."""
        model: Any = self.model
        return model.get_output_embeddings()

    def forward(self, tokens: Tensor, segments: Tensor | None = None, *, output_hidden_states: bool = False) -> Any:
        options: dict[str, Any] = {}
        if segments is not None:
            options["position_ids"] = positions_of(segments)
            if takes_documents(self.model):
                # transformers returns masks of four axes as they are. Otherwise it reads the positions, which waits.
                no_mask = torch.empty(0, 0, 0, 0, dtype=torch.bool, device=tokens.device)
                options |= {"attention_mask": no_mask, "documents": packed_rows(segments)}
        return self.model(input_ids=tokens, use_cache=False, output_hidden_states=output_hidden_states, **options)


def positions_of(segments: Tensor) -> Tensor:
    """Return the position of each token in its segment, int64 [B, T], from 0. segments: integers [B, T]."""
    index = torch.arange(segments.shape[1], device=segments.device).expand_as(segments)
    begins = torch.ones_like(segments, dtype=torch.bool)
    begins[:, 1:] = segments[:, 1:] != segments[:, :-1]
    return index - torch.where(begins, index, 0).cummax(dim=1).values


def load_model(place: Path, *, dtype: Any, seed: int | None = None, device_map: str | None = None) -> Causal:
    """Return the model in a directory or with an id, in a `dtype` of torch or its own ("auto").

    device_map: of `from_pretrained`, by default the CPU. seed: draw the weights from it if the directory has a
    configuration and no weights. No generator of the process moves. Raise `ModelFileError` for what transformers cannot
    load, and for files without some of the weights, which transformers would draw at random.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed or 0)
        if seed is not None and place.is_dir() and not has_weights(place):
            config = _loaded(place, AutoConfig.from_pretrained)
            return Causal(AutoModelForCausalLM.from_config(config).to(dtype))
        options: dict[str, Any] = {} if device_map is None else {"device_map": device_map}
        options["output_loading_info"] = True
        loaded: Any = _loaded(place, AutoModelForCausalLM.from_pretrained, dtype=dtype, **options)
    model, report = loaded
    parameters = dict(model.named_parameters(remove_duplicate=False))
    read = {id(parameter) for name, parameter in parameters.items() if name not in report["missing_keys"]}
    if missing := sorted(name for name in report["missing_keys"] if id(parameters.get(name)) not in read):  # not tied
        more = f" and {len(missing) - 1} others" if len(missing) > 1 else ""
        raise ModelFileError(f"cannot load {place}: its files lack the weights {missing[0]}{more}")
    return Causal(model)


def vocab_size_of(place: Path) -> int:
    """Return the number of tokens of a model by its configuration. Raise `ModelFileError` if there is none."""
    from transformers import AutoConfig

    return int(_loaded(place, AutoConfig.from_pretrained).get_text_config().vocab_size)


def load_tokenizer(place: Path) -> Any:
    """Return the tokenizer of a model. Raise `ModelFileError` if transformers cannot load it."""
    from transformers import AutoTokenizer

    return _loaded(place, AutoTokenizer.from_pretrained)


def _loaded(place: Path, load: Callable[..., Loaded], **options: Any) -> Loaded:
    from transformers.utils import logging

    logging.disable_progress_bar()
    missing = "" if os.path.lexists(place) else f"there is no such directory{similar_path(place)}"
    if missing and not ID.fullmatch(os.fspath(place)):
        raise ModelFileError(f"cannot load {place}: {missing}; expected a model of transformers")
    with loading(place, missing and f"{missing}, and as the id of a model: "):
        return load(os.fspath(place), **options)


@contextmanager
def loading(place: Path, reason: str = "", expected: str = "a model of transformers") -> Iterator[None]:
    """Raise `ModelFileError` for an error of a library that reads the files in `place`, except a lack of memory.

    Args:
        place: Named in the message.
        reason: Text before the reason of the library.
        expected: What the files should have been.
    """
    try:
        yield
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # of damaged files: SafetensorError, EOFError, UnpicklingError, bare Exception, ...
        raise ModelFileError(f"cannot load {place}: {reason}{first_line(error)}; expected {expected}") from error


def directory_of(place: Path) -> Path:
    """Return the directory with the files of a model that was loaded by `place`: that itself, or a cached snapshot."""
    from transformers.utils import cached_file

    if place.is_dir():
        return place
    return Path(str(cached_file(os.fspath(place), CONFIG, local_files_only=True))).parent


def tokenizer_digests(tokenizer: Any) -> dict[str, str]:
    """Return SHA-256 digests of a tokenizer, and of its chat template."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    content = json.dumps(sorted(tokenizer.get_vocab().items())) if backend is None else backend.to_str()
    template = json.dumps(tokenizer.chat_template, sort_keys=True)
    return {
        "tokenizer_sha256": hashlib.sha256(content.encode()).hexdigest(),
        "chat_template_sha256": hashlib.sha256(template.encode()).hexdigest(),
    }


def check_tokens(tokenizer: Any, other: Any, whose: str = "teacher") -> None:
    """Raise `SettingError` unless every token of the student's tokenizer has the same number in the other one."""
    wanted, known = tokenizer.get_vocab(), other.get_vocab()  # a call takes 71 ms for 49,152 tokens
    moved = [token for token, number in wanted.items() if known.get(token) != number]
    if moved:
        token = min(moved, key=wanted.__getitem__)
        number, there = wanted[token], known.get(token, "missing")
        raise SettingError(
            f"the tokenizers of {whose} and student differ in {len(moved)} tokens: {token!r} is {number} for the "
            f"student and {there} for the {whose}; expected equal numbers, because logits are indexed by them"
        )


@torch.no_grad()
def logits_of(model: Causal) -> Tensor:
    """Return the logits of a few tokens without dropout, to compare models by."""
    was_training = model.training
    logits: Tensor = model.eval()(torch.arange(8)[None] % model.vocab_size).logits
    model.train(was_training)
    return logits


def save_model(
    model: Causal,
    tokenizer: Any,
    directory: Path,
    manifest: dict[str, Any],
    *,
    merge: Callable[[Causal], Causal] | None = None,
) -> Causal:
    """Write model or adapter, settings and tokenizer as `from_pretrained` reads them, then the manifest.

    The files are read back first, on the CPU, and have to give the logits of `model`. The digests of the manifest are
    those of configuration and weights, or of the index of their shards.

    Args:
        model: The trained model, on any device.
        tokenizer: Saved with the model.
        directory: Where the files are written; each appears by a rename.
        manifest: Written last, with the digests.
        merge: Called once with `model`, on the CPU, and returns the model to write; None writes `model`.

    Returns:
        What was written, on the device of `model`.

    Raises:
        OutputError: With the cause, if a file cannot be written or gives other logits; then no manifest is left.
    """
    device = next(model.parameters()).device
    trained = logits_of(model.to("cpu"))
    model = model if merge is None else merge(model)
    save: Any = model.model
    # peft would look for the base on the hub, to see whether its vocabulary has grown.
    options = {"save_embedding_layers": False} if hasattr(save, "peft_config") else {}
    try:
        (directory / MANIFEST).unlink(missing_ok=True)  # an older run's does not describe the new files
        with tempfile.TemporaryDirectory(dir=directory, prefix=".export-") as place:
            save.save_pretrained(place, **options)
            tokenizer.save_pretrained(place)
            written = sorted(Path(place).iterdir())
            read_back = load_model(Path(place), dtype=next(model.parameters()).dtype)
            if not equal_logits(logits_of(read_back), trained, READ_BACK):
                raise OutputError(f"the model written to {directory} has other logits than the trained one; {KEPT}")
            del read_back
            for file in written:
                file.replace(directory / file.name)
        names = {file.name for file in written}
        described = next(files for files in MODEL_FILES if names.issuperset(files))
        digests = {name: file_digest(directory / name) for name in described}
        text = json.dumps({**manifest, "sha256": digests}, indent="  ", allow_nan=False) + "\n"
        atomic_write(directory / MANIFEST, lambda path: path.write_text(text, encoding="utf-8"))
    except OutputError:
        raise
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise OutputError(f"cannot write the model to {directory}: {reason}") from error
    return model.to(device)
