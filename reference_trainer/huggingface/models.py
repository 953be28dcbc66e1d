"""Load, call and save causal models of transformers, as teacher and student."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from reference_trainer.distillation.packed_rows import packed_rows
from reference_trainer.errors import ModelFileError, OutputError, PackageError, SettingError, first_line, similar_path
from reference_trainer.huggingface.attention import equal_logits, leave_uncompiled, takes_documents
from reference_trainer.models.loading import skeleton, weight_files
from reference_trainer.storage.export import CONFIG, INDEX, MANIFEST, MODEL_FILES, WEIGHTS, has_weights
from reference_trainer.storage.export import weight_files as stored_files
from reference_trainer.storage.files import atomic_write, file_digest
from reference_trainer.training.update import layers_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase
    from transformers.utils import ModelOutput

Loaded = TypeVar("Loaded")
ID = re.compile(r"[\w.-]+(/[\w.-]+)?", re.ASCII)
"""The id of a model on the hub, NAME or OWNER/NAME; a path with more parts does not match."""
READ_BACK = 1e-4
"""Largest allowed difference between logits of exported and trained model, relative to the largest logit."""
REMOTE = "transformers_modules."
"""Prefix of the names of modules that transformers creates from the code of a model."""
KEY_MAPPING = {r"(lora_magnitude_vector\.default)$": r"\1.weight"}
"""The `key_mapping` of `from_pretrained`: transformers 5.24 misses this part of the names in adapters with DoRA."""
BACKEND = "inductor"
"""The backend of `torch.compile`."""
COMPILED_VARIANTS = 64
"""Number of graphs of one function that `compile_layers` allows, after which PyTorch runs the function uncompiled."""


class Causal(nn.Module):
    """A causal model of transformers with the interface of this trainer: tokens [B, T], and segments of packed rows.

    Positions restart in every segment; from the positions, transformers derives that a token attends only to its own
    document. No mask is needed for padding, because it follows the documents of a row, and attention is causal.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    @property
    def vocab_size(self) -> int:
        return int(self.model.config.get_text_config().vocab_size)

    def get_output_embeddings(self) -> object:
        """Return the output layer."""
        return self.model.get_output_embeddings()

    def forward(
        self, tokens: Tensor, segments: Tensor | None = None, *, output_hidden_states: bool = False
    ) -> ModelOutput:
        options: dict[str, object] = {}
        if segments is not None:
            options["position_ids"] = positions_of(segments)
            if takes_documents(self.model):
                # transformers passes a mask of four axes on unchanged. Without a mask, it would read the values of the
                # positions, and so wait for the device.
                no_mask = torch.empty(0, 0, 0, 0, dtype=torch.bool, device=tokens.device)
                options |= {"attention_mask": no_mask, "documents": packed_rows(segments)}
        return self.model(input_ids=tokens, use_cache=False, output_hidden_states=output_hidden_states, **options)


def positions_of(segments: Tensor) -> Tensor:
    """Return the position of each token in its segment, int64 [B, T], from 0. segments: integers [B, T]."""
    # Subtract the index at which the segment begins: the largest index of a first token up to this token.
    index = torch.arange(segments.shape[1], device=segments.device).expand_as(segments)
    begins = torch.ones_like(segments, dtype=torch.bool)
    begins[:, 1:] = segments[:, 1:] != segments[:, :-1]
    return index - torch.where(begins, index, 0).cummax(dim=1).values


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The location of a model of transformers, and options to load it.

    Attributes:
        place: A directory or an id.
        revision: A branch, tag or commit of the hub.
        trust_remote_code: Whether to execute the code of the model.
        attention: The `attn_implementation` of transformers.
        quantization: A `quantization_config` in JSON.
        device_map: The argument of `from_pretrained`, by default the CPU.
    """

    place: Path
    revision: str | None = None
    trust_remote_code: bool = False
    attention: str | None = None
    quantization: str | None = None
    device_map: object = None

    @property
    def options(self) -> dict[str, bool | str]:
        """Return the arguments of `from_pretrained` for configuration, tokenizer and model."""
        revision = {} if self.revision is None else {"revision": self.revision}
        return {"trust_remote_code": self.trust_remote_code} | revision


def load_model(source: Source | Path, *, dtype: object, seed: int | None = None) -> Causal:
    """Load a model.

    The global random generators are not changed.

    Args:
        source: The model, or the directory or id of a model that needs no options.
        dtype: A dtype of torch, or "auto" for the dtype of the files.
        seed: The seed of the weights if the directory has a configuration and no weights.

    Raises:
        ModelFileError: transformers cannot load the model, or the files lack some weights; transformers itself would
            draw these at random.
        SettingError: The attention is unknown, or transformers refuses the quantization.
        PackageError: The attention or the quantization needs a package that is not installed.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    source = _source(source)
    place = source.place
    chosen: dict[str, object] = {} if source.attention is None else {"attn_implementation": source.attention}
    check_loading(source)
    if source.quantization is not None:
        chosen["quantization_config"] = _quantization(source.quantization)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed or 0)  # torch.manual_seed would also seed the generators of the GPUs
        if seed is not None and place.is_dir() and not has_weights(place):
            config = _load(source, AutoConfig.from_pretrained)
            with loading(place):
                model = AutoModelForCausalLM.from_config(config, trust_remote_code=source.trust_remote_code, **chosen)
            return Causal(model.to(dtype))
        if source.device_map is not None:
            chosen["device_map"] = source.device_map
        try:
            loaded = _load(
                source,
                AutoModelForCausalLM.from_pretrained,
                dtype=dtype,
                output_loading_info=True,
                key_mapping=KEY_MAPPING,
                **chosen,
            )
        except ModelFileError as error:
            if source.quantization is None:
                raise
            raise _quantization_error(error.__cause__ or error) from error
    # transformers draws missing weights at random and only warns. Of the names of a tied weight, it lists all but one
    # as missing. So a weight is really missing only if all names of its parameter are listed.
    model, report = loaded
    parameters = dict(model.named_parameters(remove_duplicate=False))
    read = {id(parameter) for name, parameter in parameters.items() if name not in report["missing_keys"]}
    missing = sorted(name for name in report["missing_keys"] if id(parameters.get(name)) not in read)
    if missing:
        others = f" and {len(missing) - 1} others" if len(missing) > 1 else ""
        raise ModelFileError(f"cannot load {place}: its files lack the weights {missing[0]}{others}")
    return Causal(model)


def load_skeleton(source: Source, *, dtype: object, directory: Path) -> Causal | None:
    """Return the model of `load_model` as a skeleton, so that every rank can read only its shard of the weights later.

    Return None if the files are not safetensors or contain an adapter or quantized weights, if transformers keeps some
    weights of the model in float32, or if it converts the stored tensors when it loads them.

    Args:
        source: The model.
        dtype: A dtype of torch, or "auto".
        directory: The directory with the files of the model, as `download` returns it.
    """
    from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

    if source.quantization is not None:
        return None
    config = _load(source, AutoConfig.from_pretrained)
    try:
        paths = stored_files(directory)
    except ModelFileError:  # other formats, or no weights: `load_model` loads them or raises
        return None
    if getattr(config, "quantization_config", None) is not None:  # the scales of a quantized weight are other tensors
        return None
    with loading(source.place):
        files = weight_files(paths, "model.")
        if dtype == "auto":
            dtype = getattr(config, "dtype", None) or next((tensor.dtype for tensor in files.values()), None)
        with torch.random.fork_rng(devices=[]):
            options: dict[str, object] = {} if source.attention is None else {"attn_implementation": source.attention}
            options |= {"dtype": dtype, "trust_remote_code": source.trust_remote_code}
            causal = skeleton(lambda: Causal(AutoModelForCausalLM.from_config(config, **options)), files)
    if causal is None:
        return None
    model = causal.model
    if dtype in (torch.float16, torch.bfloat16) and _float32_parts(model):
        return None
    if (directory / "generation_config.json").is_file():
        model.generation_config = _load(source, GenerationConfig.from_pretrained)
    return causal.eval()


def _float32_parts(model: object) -> bool:
    """Return whether `from_pretrained` keeps some weights of a model in float32 for every data type."""
    return any(getattr(model, f"_keep_in_fp32_modules{kind}", None) for kind in ("", "_strict"))


def download(source: Source) -> Path:
    """Return the directory with the files of a model: its place, or the snapshot in the cache of the hub.

    Safetensors files that the cache lacks are downloaded; weights in other formats are not. Raise `ModelFileError` if
    the hub cannot be read.
    """
    from transformers.utils import cached_file
    from transformers.utils.hub import get_checkpoint_shard_files

    if source.place.is_dir():
        return source.place

    def fetch(place: str, *, revision: str | None = None, **_: object) -> Path:
        options: dict[str, object] = {"revision": revision, "_raise_exceptions_for_missing_entries": False}
        for name in (CONFIG, "generation_config.json"):
            cached_file(place, name, **options)
        if cached_file(place, WEIGHTS, **options) is None:
            index = cached_file(place, INDEX, **options)
            if index is not None:
                get_checkpoint_shard_files(place, index, revision=revision)
        return directory_of(source)

    return _load(source, fetch)


def load_shapes(source: Source, *, dtype: object) -> Causal:
    """Return a model on the meta device, from its configuration alone.

    The model has the default attention, because other attentions may need further packages.

    Args:
        source: The model.
        dtype: A dtype of torch, or "auto" for the dtype in the configuration.

    Raises:
        ModelFileError: The configuration cannot be read.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    config = _load(source, AutoConfig.from_pretrained)
    if dtype == "auto":
        dtype = getattr(config, "dtype", None) or torch.float32
    with loading(source.place), torch.device("meta"):
        return Causal(AutoModelForCausalLM.from_config(config, dtype=dtype, trust_remote_code=source.trust_remote_code))


def _source(source: Source | Path) -> Source:
    """Return the source; for a path, return a source without options."""
    return source if isinstance(source, Source) else Source(place=source)


def check_loading(source: Source) -> None:
    """Check attention and quantization of a model. No weights are read.

    Raises:
        SettingError: If the model does not support the attention or the quantization.
        PackageError: If either needs a package that is not installed.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    if source.quantization is not None:
        _quantization(source.quantization)
    if source.attention is None:
        return
    config = _load(source, AutoConfig.from_pretrained)
    # Create the model without the option first: if that fails too, the attention is not the cause.
    for name in (None, source.attention):
        try:
            with torch.device("meta"):
                AutoModelForCausalLM.from_config(
                    config,
                    trust_remote_code=source.trust_remote_code,
                    **({} if name is None else {"attn_implementation": name}),
                )
        except Exception as error:
            if name is None:
                return  # `load_model` reports the error
            kind = PackageError if isinstance(error, ImportError) else SettingError
            raise kind(f"attn_implementation: cannot use {name} in {source.place}: {first_line(error)}") from error


def _quantization(text: str) -> object:
    """Return the quantization configuration. Raise `SettingError` or `PackageError` if transformers refuses it."""
    from transformers.quantizers.auto import AutoQuantizationConfig

    try:
        return AutoQuantizationConfig.from_dict(json.loads(text))
    except Exception as error:  # the class depends on the method of quantization
        raise _quantization_error(error) from error


def _quantization_error(error: BaseException) -> SettingError | PackageError:
    """Return the `SettingError` or `PackageError` to raise for an error of transformers about a quantization."""
    if isinstance(error, ImportError):
        return PackageError(f"quantization: {first_line(error)}")
    hint = 'such as {"quant_method": "bitsandbytes", "load_in_4bit": true}'
    return SettingError(f"quantization: {first_line(error)}; expected a quantization_config of transformers, {hint}")


def vocab_size_of(source: Source | Path) -> int:
    """Return the vocabulary size in the configuration of a model. Raise `ModelFileError` if it cannot be read."""
    from transformers import AutoConfig

    return int(_load(_source(source), AutoConfig.from_pretrained).get_text_config().vocab_size)


def load_tokenizer(source: Source | Path) -> PreTrainedTokenizerBase:
    """Return the tokenizer of a model. Raise `ModelFileError` if transformers cannot load it."""
    from transformers import AutoTokenizer

    return _load(_source(source), AutoTokenizer.from_pretrained)


def compile_layers(name: str, model: nn.Module, backend: str | Callable[..., object] | None = None) -> None:
    """Let `torch.compile` compile the layers of a model, in place. Names of weights do not change.

    Layers of one class share compiled code. Sharding, adapters and output layers are not compiled. Shapes are dynamic
    from the start, so that the results for a batch do not depend on the shapes of earlier batches. Source: PyTorch,
    regional compilation recipe.

    Args:
        name: The name of the model, for messages.
        model: A model with an `nn.ModuleList` of layers.
        backend: The backend of `torch.compile`, by default `BACKEND`.

    Raises:
        SettingError: The model has no such layers, or nothing can be compiled on this machine.
    """
    backend = backend or BACKEND
    layers = layers_of(model)
    if not layers:
        raise SettingError(f"compile: {name} has no nn.ModuleList of layers; leave out --compile")
    device = next(model.parameters()).device
    try:  # report a missing compiler before the training; `layer.compile` below compiles only at the first call
        torch.compile(torch.sin, backend=backend)(torch.zeros(2, device=device))
    except Exception as error:  # of the backend: no C++ compiler, no Triton
        reason = f"cannot compile on {device}: {first_line(error)}"
        raise SettingError(f"compile: {reason}; install a compiler, or leave out --compile") from error
    leave_uncompiled(getattr(model, "model", model))
    # By default, PyTorch compiles at most 8 graphs of one Python function, then runs it uncompiled. transformers wraps
    # the forwards of all layers and attentions in a single function. With packed rows, attention is not compiled, and
    # this function is not inlined into its callers. So it needs a graph for every layer class and attention class of
    # every model, with and without gradients, and for special sizes (1, or equal sizes of two axes).
    compiler: Any = torch._dynamo.config  # `torch.compiler.config` has the limit only in later versions
    compiler.recompile_limit = max(compiler.recompile_limit, COMPILED_VARIANTS)
    for layer in layers:
        layer.compile(backend=backend, dynamic=True)


def _load(source: Source, load: Callable[..., Loaded], **options: object) -> Loaded:
    """Call a loader of transformers, such as `from_pretrained`. Raise `ModelFileError` if it fails."""
    from transformers.utils import logging

    place = source.place
    logging.disable_progress_bar()
    missing = check_place(source)
    reason = f"{missing}, and as the id of a model: " if missing else ""
    hint = f"a model of transformers{_hub_hint()}" if missing else "a model of transformers"
    with loading(place, reason, hint):
        code: Mapping[str, object] = {} if source.trust_remote_code else _code_of(source)
        if code:
            raise ValueError(f"it has code, for {', '.join(sorted(code))}; read the code, then use --trust-remote-code")
        return load(os.fspath(place), **source.options, **options)


def _hub_hint() -> str:
    """Return a hint for a model of the hub that cannot be loaded."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return ", by its path, or by an id that is in the cache: HF_HUB_OFFLINE is set, so nothing is downloaded"
    return ", by its path or its id; HF_TOKEN is needed for a private or gated model"


def check_place(source: Source) -> str:
    """Return "" for a model in a directory; for an id of the hub, return a text that no such directory exists.

    Raises:
        ModelFileError: The place is neither a directory nor an id, or the hub cannot be reached.
    """
    place = source.place
    if os.path.lexists(place):
        return ""
    missing = f"there is no such directory{similar_path(place)}"
    if not ID.fullmatch(os.fspath(place)):
        raise ModelFileError(f"cannot load {place}: {missing}; expected a model of transformers")
    check_hub(source, missing)
    return missing


def check_hub(source: Source, missing: str) -> None:
    """Raise `ModelFileError` if the hub must be read and cannot be reached.

    This function makes at most one request: none offline, or if the cache has the configuration. Without it, the
    library would try six times for every file, for about a minute.

    Args:
        source: The model, by its id.
        missing: A text that no directory of this name exists, for the message.
    """
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
    from huggingface_hub.errors import FileMetadataError, HfHubHTTPError, HFValidationError, OfflineModeIsEnabled

    place, revision = os.fspath(source.place), source.revision
    if constants.HF_HUB_OFFLINE:
        return
    try:
        if try_to_load_from_cache(place, CONFIG, revision=revision) is not None:
            return
        get_hf_file_metadata(hf_hub_url(place, CONFIG, revision=revision), timeout=constants.HF_HUB_ETAG_TIMEOUT)
    except (HfHubHTTPError, FileMetadataError, HFValidationError, OfflineModeIsEnabled):
        return  # an answer of the hub, or an invalid id, which the caller reports
    except Exception as error:  # of the HTTP library, which depends on the version of huggingface_hub
        raise ModelFileError(
            f"cannot load {place}: {missing}, and {constants.ENDPOINT}, which may have a model of this id, cannot be "
            f"reached: {first_line(error)}; check the path, or the network and its proxy, or load the model from the "
            "cache with HF_HUB_OFFLINE=1"
        ) from error


def _code_of(source: Source) -> Mapping[str, object]:
    """Return the classes that a model defines in code of its files; {} if transformers has the type of the model."""
    from transformers import CONFIG_MAPPING, PretrainedConfig

    try:
        content, _ = PretrainedConfig.get_config_dict(os.fspath(source.place), **source.options)
    except (OSError, ValueError):
        return {}  # the caller reports the error
    code: Mapping[str, object] = content.get("auto_map") or {}
    return {} if content.get("model_type") in CONFIG_MAPPING else code


@contextmanager
def loading(place: Path, reason: str = "", expected: str = "a model of transformers") -> Iterator[None]:
    """Raise `ModelFileError` for any error of a library that reads the files in `place`, except a lack of memory.

    Args:
        place: The location, for the message.
        reason: Text before the message of the library.
        expected: The expected content of the files.
    """
    try:
        yield
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # damaged files raise SafetensorError, EOFError, UnpicklingError, bare Exception, ...
        raise ModelFileError(f"cannot load {place}: {reason}{first_line(error)}; expected {expected}") from error


def directory_of(source: Source | Path) -> Path:
    """Return the directory with the files of a model that was loaded: its place, or a cached snapshot."""
    from transformers.utils import cached_file

    source = _source(source)
    place, revision = source.place, source.revision
    if place.is_dir():
        return place
    return Path(str(cached_file(os.fspath(place), CONFIG, revision=revision, local_files_only=True))).parent


def digested_files(directory: Path) -> list[Path]:
    """Return the weight files of a model, safetensors or pickled. Raise `ModelFileError` if there are no such files."""
    try:
        return stored_files(directory)
    except ModelFileError:
        if pickled := sorted(directory.glob("pytorch_model*.bin")):
            return pickled
        raise


def tokenizer_digests(tokenizer: PreTrainedTokenizerBase) -> dict[str, str]:
    """Return SHA-256 digests of a tokenizer, and of its chat template."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    content = json.dumps(sorted(tokenizer.get_vocab().items())) if backend is None else backend.to_str()
    template = json.dumps(tokenizer.chat_template, sort_keys=True)
    return {
        "tokenizer_sha256": hashlib.sha256(content.encode()).hexdigest(),
        "chat_template_sha256": hashlib.sha256(template.encode()).hexdigest(),
    }


def check_tokens(
    tokenizer: PreTrainedTokenizerBase, other: PreTrainedTokenizerBase, owner: str = "teacher", hint: str = ""
) -> None:
    """Raise `SettingError` unless every token of the student's tokenizer has the same number in the other tokenizer.

    Args:
        tokenizer: The tokenizer of the student.
        other: The other tokenizer, which may have further tokens.
        owner: The model of the other tokenizer, for the message.
        hint: Text for the end of the message.
    """
    numbers, other_numbers = tokenizer.get_vocab(), other.get_vocab()  # a call takes 71 ms for 49,152 tokens
    differing = [token for token, number in numbers.items() if other_numbers.get(token) != number]
    if differing:
        token = min(differing, key=numbers.__getitem__)
        raise SettingError(
            f"the tokenizers of {owner} and student differ in {len(differing)} tokens: {token!r} is {numbers[token]} "
            f"for the student and {other_numbers.get(token, 'missing')} for the {owner}; "
            f"expected equal numbers, because logits are indexed by these numbers{hint}"
        )


@torch.no_grad()
def logits_of(model: Causal) -> Tensor:
    """Return the logits of fixed tokens, without dropout, to compare models."""
    was_training = model.training
    logits: Tensor = model.eval()(torch.arange(8)[None] % model.vocab_size).logits
    model.train(was_training)
    return logits


def save_model(
    model: Causal,
    tokenizer: PreTrainedTokenizerBase,
    directory: Path,
    manifest: dict[str, object],
    *,
    merge: Callable[[Causal], Causal] | None = None,
) -> Causal:
    """Write model or adapter, configuration and tokenizer in the format of `from_pretrained`, then the manifest.

    The files are first written to a temporary directory and read back on the CPU. The model that was read back must
    give the logits of the trained model. The manifest has the digests of the configuration and of the weights; for
    weights in several files, the digest of their index.

    Args:
        model: The trained model, on any device.
        tokenizer: The tokenizer to save with the model.
        directory: The output directory; every file is written atomically.
        manifest: The content of the manifest without digests. The manifest is written last.
        merge: A function that is called once with `model`, on the CPU, and returns the model to write; None to write
            `model` itself.

    Returns:
        The written model, on the device of `model`.

    Raises:
        OutputError: A file cannot be written, or the files give other logits. The directory then has no manifest.
    """
    device = next(model.parameters()).device
    trusted = any(type(part).__module__.startswith(REMOTE) for part in model.modules())
    with torch.compiler.set_stance("force_eager"):  # the CPU may have no compiler
        trained = logits_of(model.to("cpu"))
    model = model if merge is None else merge(model)
    hf_model = model.model
    # By default, peft looks for the base on the hub, to find out whether the vocabulary has grown.
    options = {"save_embedding_layers": False} if hasattr(hf_model, "peft_config") else {}
    try:
        (directory / MANIFEST).unlink(missing_ok=True)  # the manifest of an older run does not describe the new files
        # Write into a temporary directory, and move the files only if they give the logits of the trained model.
        with tempfile.TemporaryDirectory(dir=directory, prefix=".export-") as place:
            hf_model.save_pretrained(place, **options)
            tokenizer.save_pretrained(place)
            written = sorted(Path(place).iterdir())
            source = Source(place=Path(place), trust_remote_code=trusted)
            read_back = load_model(source, dtype=next(model.parameters()).dtype)
            if not equal_logits(logits_of(read_back), trained, READ_BACK):
                raise OutputError(
                    f"the model written to {directory} has other logits than the trained model; its files are removed, "
                    "and the checkpoints stay"
                )
            del read_back
            for file in written:
                file.replace(directory / file.name)
        names = {file.name for file in written}
        digested_names = next(files for files in MODEL_FILES if names.issuperset(files))
        digests = {name: file_digest(directory / name) for name in digested_names}
        text = json.dumps({**manifest, "sha256": digests}, indent="  ", allow_nan=False) + "\n"
        atomic_write(directory / MANIFEST, lambda path: path.write_text(text, encoding="utf-8"))
    except OutputError:
        raise
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise OutputError(f"cannot write the model to {directory}: {reason}") from error
    return model.to(device)
