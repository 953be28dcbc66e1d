"""Attacks on students with a trained adapter. The subject has `Adapted`, as `huggingface.adapters` does.

In runs, the adapter is a table of low rank beside a frozen one; adapters of peft are compared with their closed forms.
"""

import io
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor, nn

import reference_trainer
from falsifiers.resume.runs import STEPS, V, settings, small_distillation
from falsifiers.support.assertions import assert_equal, refusal
from falsifiers.support.causal import VOCABULARY, random_llama, word_tokenizer
from falsifiers.support.oracles import assert_refused
from falsifiers.support.runs import scratch
from reference_trainer import CheckpointError, DriftError, Lines, SettingError, Settings
from reference_trainer.huggingface.adapters import frozen_weights
from reference_trainer.huggingface.models import Source, load_model, load_skeleton, save_model
from reference_trainer.pipeline.custom_class import checkpoint_module
from reference_trainer.storage.whole_weights import read_weights, tensors_digest

LAST = f"checkpoints/student-step{STEPS}"


class LowRank(nn.Module):
    """Logits that are a row of a frozen table [V, V] plus the same row of a product [V, rank] x [rank, V]."""

    def __init__(self, rank: int, seed: int) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(seed)
        self.base = nn.Embedding(V, V, _weight=torch.randn(V, V, generator=draw)).requires_grad_(False)
        self.down = nn.Embedding(V, rank, _weight=torch.randn(V, rank, generator=draw))
        self.up = nn.Linear(rank, V, bias=False)
        nn.init.zeros_(self.up.weight)
        self.register_buffer("frozen", torch.ones(V))

    def forward(self, input_ids: Tensor, **_: Any) -> Any:
        return SimpleNamespace(logits=self.base(input_ids) + self.up(self.down(input_ids)))


def _distillation(subject: Any, rank: int, base: int) -> Any:
    """Return the class of a distillation whose student and teacher are adapters of bases with these seeds."""

    class LowRankDistillation(small_distillation(reference_trainer)):  # made for a package
        def make_student(self) -> nn.Module:
            module: nn.Module = subject.Adapted(LowRank(rank, base))
            self.digests["base_sha256"] = tensors_digest(frozen_weights(module))
            return module

        def make_teacher(self) -> nn.Module:
            module: nn.Module = subject.Adapted(LowRank(rank, base + 1))
            return module

    return LowRankDistillation


def _trained(subject: Any, directory: Path, out: str, rank: int, base: int = 0, **options: Any) -> nn.Module:
    chosen = settings(directory, out, save_every=2, hang_after=0.0, **options)
    with _distillation(subject, rank, base)(chosen, lines=Lines(io.StringIO())) as run:
        run.prepare()
        student: nn.Module = run.conclude(run.run()).student
        return student


def _changed(first: nn.Module, second: nn.Module) -> list[str]:
    tensors = {**dict(second.named_parameters()), **dict(second.named_buffers())}
    pairs = [*first.named_parameters(), *first.named_buffers()]
    return [name for name, tensor in pairs if not tensor.equal(tensors[name])]


@given(rank=st.integers(1, 3), cut=st.integers(1, STEPS - 1))
def falsify_only_the_adapter_is_trained_and_saved(subject: Any, rank: int, cut: int) -> None:
    adapter = ["model.down.weight", "model.up.weight"]
    with scratch() as directory:
        whole, checkpoint = _trained(subject, directory, "whole", rank), directory / "whole" / LAST
        assert_equal("trained tensors", _changed(whole, subject.Adapted(LowRank(rank, 0))), adapter)
        states = [f"optimizer.student.{name}.{kind}" for name in adapter for kind in ("exp_avg", "exp_avg_sq", "step")]
        saved = sorted(load_file(checkpoint / "rank-00000.safetensors"))
        assert_equal("tensors of a checkpoint", saved, sorted([*(f"student.{name}" for name in adapter), *states]))
        _trained(subject, directory, "cut", rank, max_steps=cut)
        # The same seeds, so the resumed run must end with the bits of the uninterrupted one.
        resume = partial(_trained, subject, directory, "cut", rank, resume=Path("latest"), force=True)
        another = partial(resume, base=5)
        assert_refused("a run with the adapter of another base", another, "base_sha256", kind=DriftError)
        # The student of a checkpoint, as exports and evaluations make it.
        weights, (same, other) = read_weights(checkpoint), (_distillation(subject, rank, b)(Settings()) for b in (0, 5))
        assert_equal("tensors of the export that differ", _changed(whole, checkpoint_module(weights, same)), [])
        export = partial(checkpoint_module, weights, other)
        assert_refused("an export with the adapter of another base", export, "base_sha256", kind=CheckpointError)
        assert_equal(f"cut at step {cut}, tensors that end otherwise", _changed(whole, resume()), [])


@given(rank=st.integers(1, 3), other=st.integers(1, 3), change=st.sampled_from(["none", "more", "fewer"]))
def falsify_weights_of_another_adapter_are_refused(subject: Any, rank: int, other: int, change: str) -> None:
    student, state = subject.Adapted(LowRank(rank, 0)), subject.Adapted(LowRank(other, 1)).state_dict()
    if change == "more":
        state["model.base.weight"] = torch.zeros(V, V)
    if change == "fewer":
        del state["model.up.weight"]
    message = refusal(lambda: student.load_state_dict(state), RuntimeError)
    assert bool(message) == (change != "none" or rank != other), f"ranks {rank} and {other}, {change}: {message!r}"
    if change != "none":
        assert_equal("changed tensors after a refusal", _changed(student, subject.Adapted(LowRank(rank, 0))), [])
    if not message:
        loaded = student.state_dict()
        assert all(torch.equal(tensor, loaded[name]) for name, tensor in state.items()), "not loaded"
        assert torch.equal(student.model.base.weight, LowRank(rank, 0).base.weight), "the base is changed"


LAYERS, WIDTH = 2, 8
OF_A_LAYER = [*(f"self_attn.{name}_proj" for name in "qkvo"), *(f"mlp.{name}_proj" for name in ("gate", "up", "down"))]
LINEAR = [f"model.layers.{layer}.{name}" for layer in range(LAYERS) for name in OF_A_LAYER]
TARGETS = {None: LINEAR, "q_proj lm_head": [f"model.layers.{n}.self_attn.q_proj" for n in range(LAYERS)] + ["lm_head"]}
TARGETS["embed_tokens"] = ["model.embed_tokens"]
"""The modules that are adapted, by the option `target_modules`."""


def _closed_form(base: Path, weights: dict[str, Tensor], targets: list[str], scale: float) -> Tensor:
    """Return the logits of the base with these weights of an adapter, without peft.

    LoRA: W + s B A (Hu et al. 2021, equation 3); DoRA: each of its rows with the length m (Liu et al. 2024, equation
    5).
    """
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float64)
    for name in targets:
        parts = {key.removeprefix(f"{name}."): tensor for key, tensor in weights.items() if key.startswith(f"{name}.")}
        layer = model.get_submodule(name)
        if "lora_embedding_A.default" in parts:
            added = (parts["lora_embedding_B.default"] @ parts["lora_embedding_A.default"]).T
        else:
            added = parts["lora_B.default.weight"] @ parts["lora_A.default.weight"]
        sum_ = layer.weight + scale * added
        if (magnitudes := parts.get("lora_magnitude_vector.default.weight")) is not None:
            sum_ = sum_ * (magnitudes / sum_.norm(dim=1))[:, None]
        layer.weight = nn.Parameter(sum_)  # another parameter, so a tied layer keeps its own
    return _logits(model)


@torch.no_grad()
def _logits(model: nn.Module) -> Tensor:
    logits: Tensor = model.eval()(torch.arange(9)[None]).logits
    return logits


@given(
    rank=st.integers(1, 3),
    alpha=st.sampled_from([None, 1, 5]),
    targets=st.sampled_from([*TARGETS]),
    kind=st.sampled_from(["lora", "rslora", "dora"]),
    seed=st.integers(0, 3),
    tied=st.booleans(),
)
@example(rank=3, alpha=None, targets=None, kind="dora", seed=1, tied=True)
@example(rank=2, alpha=None, targets="q_proj lm_head", kind="lora", seed=2, tied=True)
@example(rank=2, alpha=5, targets=None, kind="rslora", seed=0, tied=False)
def falsify_adapter_of_peft_has_its_closed_form(
    subject: Any, rank: int, alpha: int | None, targets: str | None, kind: str, seed: int, tied: bool
) -> None:
    """It is compared when it is new, trained, saved and read in three ways, and merged; all in float64."""
    kind = "lora" if targets == "embed_tokens" else kind  # whose DoRA scales columns
    options: dict[str, Any] = {"use_rslora": kind == "rslora", "use_dora": kind == "dora"}
    options |= {} if alpha is None else {"lora_alpha": alpha}
    options |= {} if targets is None else {"target_modules": targets.split()}
    scale = (2 * rank if alpha is None else alpha) / (rank**0.5 if kind == "rslora" else rank)
    case = f"{kind} of {targets or 'all linear layers'}, rank {rank}, alpha {alpha}{', tied' * tied}"
    with scratch() as directory:
        base, words = directory / "base", word_tokenizer()
        random_llama(len(VOCABULARY), WIDTH, layers=LAYERS, tie_word_embeddings=tied).double().save_pretrained(base)

        def added(**changes: Any) -> Any:
            chosen = {"rank": rank, "seed": seed, "options": options} | changes
            return subject.add_adapter(load_model(base, dtype=torch.float64), base, **chosen)

        def assert_closed(label: str, logits: Tensor) -> None:
            distance = float((logits - expected).abs().max() / expected.abs().max())
            assert distance < 1e-9, f"{case}: logits {label} are {distance:.1e} from W + s B A, with s {scale:.3g}"

        before, state = _logits(load_model(base, dtype=torch.float64)), torch.get_rng_state()
        new, other = added(), added(seed=seed + 1)
        assert torch.equal(torch.get_rng_state(), state), f"{case}: the generator of the process has moved"
        weights = new.state_dict()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(torch.initial_seed() + 1)
            again = added().state_dict()
        changed = [name for name, tensor in again.items() if not tensor.equal(weights[name])]
        assert not changed, f"{case}: with another generator of the process, seed {seed} draws another {changed[:1]}"
        adapted = {name.removeprefix("model.base_model.model.").partition(".lora_")[0] for name in weights}
        assert_equal(f"{case}: adapted modules", sorted(adapted), sorted(TARGETS[targets]))
        distance = float((_logits(new) - before).abs().max())
        assert distance < 1e-9, f"{case}: the new adapter changes a logit of its base by {distance:.1e}"
        same = [name for name, tensor in other.state_dict().items() if "lora_A" in name and tensor.equal(weights[name])]
        assert not same, f"{case}: seeds {seed} and {seed + 1} draw one {same[:1]}"
        # Ranks that load a part of the base add the adapter of one process, or none if it is computed from the base.
        skeleton = load_skeleton(Source(place=base), dtype=torch.float64, directory=base)
        part = subject.add_adapter_to_skeleton(skeleton, base, rank=rank, options=options, seed=seed)
        assert_equal(f"{case}: no adapter of a model without weights", part is None, kind == "dora")
        drawn = {} if part is None else part.state_dict()
        assert all(tensor.equal(weights[name]) for name, tensor in drawn.items()), f"{case}: another one with parts"

        draw = torch.Generator().manual_seed(seed)
        for parameter in new.parameters():
            if parameter.requires_grad:
                parameter.data += 0.3 * torch.randn(parameter.shape, generator=draw, dtype=parameter.dtype)
        trained = {name.removeprefix("model.base_model.model."): tensor for name, tensor in new.state_dict().items()}
        expected = _closed_form(base, trained, TARGETS[targets], scale)
        assert_closed("after training", _logits(new))
        for name in ("out", "merged"):
            (directory / name).mkdir()
        save_model(new, words, directory / "out", {})
        assert_closed("of the files", _logits(load_model(directory / "out", dtype=torch.float64)))
        other.load_state_dict(subject.adapter_weights(directory / "out", like=other))
        assert_closed("of a student that begins with the files", _logits(other))
        for name, value in {"lora_alpha": scale + 9, "use_rslora": kind != "rslora"}.items():
            like = added(options={**options, name: value})
            refused = partial(subject.adapter_weights, directory / "out", like=like)
            assert_refused(f"{case}: files with another {name}", refused, name, kind=SettingError)
        assert_refused(f"{case}: an unknown option", partial(added, options={"r_": 1}), "r_", kind=SettingError)
        for biased in (False, *([True] if kind == "lora" and targets != "embed_tokens" else [])):
            message = refusal(
                partial(subject.check_merge, added(options={**options, "lora_bias": biased})), SettingError
            )
            assert bool(message) == biased, (
                f"{case}: a merge of an adapter, with biases {biased}, ends with {message!r}"
            )
        merged = subject.merge_adapter(new)
        assert_closed("of the merged model", _logits(merged))
        save_model(merged, words, directory / "merged", {})
        assert_closed(
            "of the files of the merged model", _logits(load_model(directory / "merged", dtype=torch.float64))
        )
