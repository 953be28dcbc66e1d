"""Attacks on how models of transformers are loaded and compiled: attention, quantization, revisions, layers."""

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from hypothesis import example, given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

import reference_trainer
from falsifiers.support.assertions import refusal
from falsifiers.support.causal import random_llama
from falsifiers.support.runs import scratch

LAYERS, VOCABULARY = 3, 11
QUANTIZED = '{"quant_method": "eighths"}'


@cache
def directory() -> Path:
    """Return a directory with a random model in float64."""
    place = tempfile.TemporaryDirectory()
    KEPT.append(place)
    random_llama(VOCABULARY, 8, layers=LAYERS).double().save_pretrained(place.name)
    return Path(place.name)


KEPT: list[Any] = []  # directories are removed when the process ends


class Backend:
    """A backend of `torch.compile` that runs the graph as it is; `runs` counts them."""

    def __init__(self) -> None:
        self.runs = 0

    def __call__(self, graph: Any, inputs: Any) -> Any:
        def run(*arguments: Any) -> Any:
            self.runs += 1
            return graph(*arguments)

        return run


def passed(model: Any, tokens: Tensor) -> dict[str, Tensor]:
    """Return logits of a forward and the gradients of its backward, by the names of weights."""
    model.zero_grad()
    logits = model(tokens).logits
    logits.square().sum().backward()
    gradients = {name: held.grad.clone() for name, held in model.named_parameters() if held.grad is not None}
    return {"logits": logits.detach()} | gradients


@given(shapes=st.lists(st.tuples(st.integers(1, 3), st.integers(2, 9)), min_size=1, max_size=3))
@example(shapes=[(2, 5), (3, 9), (1, 2)])
def falsify_compiled_layers_compute_the_same(subject: Any, shapes: list[tuple[int, int]]) -> None:
    torch.compiler.reset()
    plain, compiled = (subject.load_model(directory(), dtype="auto") for _ in range(2))
    backend = Backend()
    subject.compile_layers("the model", compiled, backend)
    begun = backend.runs
    for number, shape in enumerate(shapes, start=1):
        tokens = torch.arange(shape[0] * shape[1]).reshape(shape) % VOCABULARY
        expected, seen = passed(plain, tokens), passed(compiled, tokens)
        assert expected.keys() == seen.keys(), (
            f"compiled weights are called {sorted(seen)}; expected {sorted(expected)}"
        )
        for name, wanted in expected.items():
            distance = float((seen[name] - wanted).abs().max() / wanted.abs().max().clamp(min=1e-3))
            assert distance < 1e-9, f"{name} of tokens {shape}, compiled, is {distance:.1e} from the plain one"
        runs = backend.runs - begun
        assert runs >= number * LAYERS, f"after {number} forwards of {LAYERS} layers, compiled code ran {runs} times"


@given(name=st.sampled_from(["eager", "sdpa", "counted"]))
def falsify_each_layer_has_the_chosen_attention(subject: Any, name: str) -> None:
    from transformers import AttentionInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    calls: list[Any] = []

    def counted(module: Any, *arguments: Any, **options: Any) -> Any:
        calls.append(module)
        return sdpa_attention_forward(module, *arguments, **options)

    AttentionInterface.register("counted", counted)
    model = subject.load_model(subject.Source(place=directory(), attention=name), dtype="auto")
    model(torch.arange(4)[None])
    seen = model.model.config._attn_implementation
    assert seen == name, f"the attention is {seen}; expected {name}"
    expected = LAYERS if name == "counted" else 0
    assert len(set(calls)) == expected, f"{name}: {len(set(calls))} layers called the attention 'counted'"


@given(
    seed=st.integers(0, 3),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
    attention=st.sampled_from([None, "eager"]),
    missing=st.lists(st.sampled_from(["lm_head.weight", "model.norm.weight"]), unique=True),
)
@example(seed=1, dtype=torch.bfloat16, attention="eager", missing=["model.norm.weight", "lm_head.weight"])
@example(seed=2, dtype=torch.float32, attention=None, missing=[])
def falsify_only_a_model_without_weights_is_drawn(
    subject: Any, seed: int, dtype: torch.dtype, attention: str | None, missing: list[str]
) -> None:
    """Load a model that has a configuration but no weights, then a model whose files lack some weights."""
    from transformers import AutoConfig, AutoModelForCausalLM

    with scratch() as place:
        shutil.copy(directory() / "config.json", place)
        source, state = subject.Source(place=place, attention=attention), torch.get_rng_state()
        drawn, other = (subject.load_model(source, dtype=dtype, seed=s).model for s in (seed, seed + 1))
        assert torch.equal(torch.get_rng_state(), state), "the generator of the process has moved"
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            expected = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(place)).to(dtype)
        for (name, tensor), wanted in zip(drawn.named_parameters(), expected.parameters(), strict=True):
            assert tensor.dtype == dtype, f"{name} of a new model in {dtype} is {tensor.dtype}"
            assert torch.equal(tensor, wanted), f"{name} is not what transformers draws with the seed {seed}"
        assert not torch.equal(drawn.lm_head.weight, other.lm_head.weight), (
            f"seeds {seed} and {seed + 1} draw one model"
        )
        seen = drawn.config._attn_implementation
        assert attention in (None, seen), f"the attention of a new model is {seen}; expected {attention}"
        tensors = load_file(directory() / "model.safetensors")
        rest = {name: tensor for name, tensor in tensors.items() if name not in missing}
        save_file(rest, place / "model.safetensors", metadata={"format": "pt"})
        words = refusal(lambda: subject.load_model(source, dtype=dtype, seed=seed), reference_trainer.ModelFileError)
        named = f"lack the weights {min(missing)}{' and 1 others' * (len(missing) > 1)}" if missing else ""
        assert bool(words) == bool(missing) and named in words, f"files without {missing} are refused by {words!r}"


@contextmanager
def eighths() -> Iterator[None]:
    """Let transformers have a quantization that rounds linear layers to eighths."""
    from transformers.quantizers import auto
    from transformers.quantizers.base import HfQuantizer
    from transformers.utils.quantization_config import QuantizationConfigMixin

    class Config(QuantizationConfigMixin):
        def __init__(self, **options: Any) -> None:
            self.quant_method = "eighths"

    class Quantizer(HfQuantizer):
        requires_calibration = is_trainable = False

        def _process_model_after_weight_loading(self, model: Any, **options: Any) -> Any:
            for layer in model.modules():
                if isinstance(layer, torch.nn.Linear):
                    layer.weight.data.mul_(8).round_().div_(8)
            return model

        def is_serializable(self, *arguments: Any, **options: Any) -> bool:
            return False

    configurations = mock.patch.dict(auto.AUTO_QUANTIZATION_CONFIG_MAPPING, eighths=Config)
    with configurations, mock.patch.dict(auto.AUTO_QUANTIZER_MAPPING, eighths=Quantizer):
        yield


PATHS = ("./techer", "../techer", ".", "techer/", "techers/one/", "a/b/c", "/techer")
IDS = ("techer", "nowhere/x")


@given(name=st.sampled_from([*PATHS, *IDS]), setting=st.sampled_from(["teacher", "student", "init_from"]))
@example(name="./techer", setting="teacher")
@example(name="nowhere/x", setting="student")
@example(name="nowhere/x", setting="init_from")
def falsify_unreachable_models_are_refused_at_once(subject: Any, name: str, setting: str) -> None:
    """One request is made for an id, without a pause, and none for a path."""
    hosts: list[str] = []

    def unresolved(host: Any, *arguments: Any, **options: Any) -> Any:
        hosts.append(str(host))
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    flat = reference_trainer.Settings(**{"teacher": "t", "student": "s", setting: name}).flat()
    network = mock.patch.object(socket, "getaddrinfo", unresolved)
    online = mock.patch("huggingface_hub.constants.HF_HUB_OFFLINE", new=False)
    place, is_tokenizer = Path(flat[setting]), setting == "student"
    load = subject.load_tokenizer if is_tokenizer else partial(subject.load_model, dtype="auto")
    with network, online, mock.patch("time.sleep") as sleep, mock.patch.dict(os.environ, no_proxy="*"):
        words = refusal(lambda: load(place), reference_trainer.ModelFileError)
    assert f"cannot load {place}" in words, f"{name} is refused by {words!r}"
    assert not sleep.called, f"{name}: {sleep.call_count} pauses before the refusal"
    if name in PATHS:
        assert not hosts, f"{name}, a path, is looked for at {hosts}"
    else:
        assert 1 <= len(hosts) <= 2, f"{name}: {len(hosts)} requests"  # one, after which the library reconnects
        asked = ("check the path", "network", "HF_HUB_OFFLINE")
        assert all(part in words for part in asked), f"{name}: {words!r} lacks one of {asked}"


REVISIONS = st.sampled_from([None, "main", "v1", "v2"])


@given(
    revision=REVISIONS,
    teacher_revision=REVISIONS,
    quantized=st.booleans(),
    attention=st.sampled_from([None, "eager"]),
)
def falsify_options_reach_the_model_that_they_name(
    subject: Any, revision: str | None, teacher_revision: str | None, quantized: bool, attention: str | None
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    settings = reference_trainer.Settings(
        student=directory(),
        teacher=directory(),
        revision=revision,
        teacher_revision=teacher_revision,
        quantization=QUANTIZED if quantized else None,
        attn_implementation=attention,
    )
    files, original = load_file(directory() / "model.safetensors"), AutoModelForCausalLM.from_pretrained
    offline = mock.patch.dict(os.environ, {"HF_HUB_OFFLINE": "1"})
    for whose, source, asked in (
        ("student", subject.student_source(settings), revision),
        ("teacher", subject.teacher_source(settings), teacher_revision),
    ):
        watched = mock.patch.object(AutoModelForCausalLM, "from_pretrained", side_effect=original)
        with offline, eighths(), watched as load:
            model = subject.load_model(source, dtype="auto")
        with offline, mock.patch.object(AutoTokenizer, "from_pretrained") as load_tokenizer:
            subject.load_tokenizer(source)
        for what, calls in (("", load), ("tokenizer of the ", load_tokenizer)):
            (call,) = calls.call_args_list
            seen = call.kwargs.get("revision")
            assert seen == asked, f"the {what}{whose} is read at the revision {seen}; expected {asked}"
        kernel = model.model.config._attn_implementation
        assert attention in (None, kernel), f"the attention of the {whose} is {kernel}; expected {attention}"
        for name, parameter in model.model.named_parameters():
            is_rounded = quantized and whose == "teacher" and name.endswith("proj.weight")
            expected = (8 * files[name]).round() / 8 if is_rounded else files[name]
            if not name.startswith("lm_head"):
                state = "rounded to eighths" if is_rounded else "as in its file"
                assert torch.equal(parameter, expected), f"{name} of the {whose} is not {state}"
