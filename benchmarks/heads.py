"""What a step with whole models costs at large vocabularies, against plain PyTorch and TRL's loss: time and memory.

    python benchmarks/heads.py [ROUNDS]

Teacher and student are decoders with an embedding and an output layer each. Every variant runs both forwards, forms
the loss and all gradients of the student; the optimizer is left out, because it is the same for all. Variants run
interleaved in one process; times are medians of CPU seconds. Memory is the peak minus the memory of parameters and
inputs. Then the divergence alone is compared with TRL's stable `DistillationTrainer`, without and with a soft cap.
Last, each variant is measured for several N and V.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from losses import CE, KD, TAU
from measuring import peak_bytes, taken
from torch.nn import functional as F

from reference_trainer.distillation import heads
from reference_trainer.distillation.objective import Weights
from reference_trainer.distillation.protocols import Batch
from reference_trainer.distillation.providers import ModuleStudent, ModuleTeacher
from reference_trainer.models.decoder import DecoderConfig, new_decoder
from reference_trainer.training.window import kd_window

LENGTH, MIB = 256, 1 << 20
PLAIN, ALL_AT_ONCE, CHUNKED = "plain F.kl_div", "step, all logits at once", "step"
TEACHER, STUDENT = (4, 512), (2, 256)


class Models:
    """A teacher, a student and a batch of N tokens; the last token of each row predicts nothing."""

    def __init__(
        self,
        rows: int,
        vocabulary: int,
        *,
        scored: float,
        shapes: Any = (TEACHER, STUDENT),
        cap: float | None = None,
        ce_weight: float = CE,
    ) -> None:
        self.vocabulary, self.cap = vocabulary, cap
        self.weights = Weights(temperature=TAU, ce_weight=ce_weight, kd_weight=KD)
        self.teacher, self.student = (
            new_decoder(DecoderConfig(vocab_size=vocabulary, layers=layers, width=width, heads=width // 16), seed)
            for seed, (layers, width) in enumerate(shapes)
        )
        for model in (self.teacher, self.student) if cap else ():
            model.config = SimpleNamespace(**asdict(model.config), final_logit_softcapping=cap)
            model.register_forward_hook(lambda module, inputs, logits: (logits / cap).tanh() * cap)
        draw = torch.Generator().manual_seed(0)
        tokens = torch.randint(vocabulary, (rows // LENGTH, LENGTH), generator=draw)
        labels = tokens.where(torch.rand(tokens.shape, generator=draw) < scored, -100)
        self.batch = Batch(tokens=tokens, labels=labels)

    def logits(self) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.no_grad():
            teacher_BTV = self.teacher(self.batch.tokens)[:, :-1]
        return self.student(self.batch.tokens)[:, :-1], teacher_BTV


def with_autograd(loss: Callable[[Models], torch.Tensor], models: Models) -> float:
    models.student.zero_grad()
    mean = loss(models)
    mean.backward()
    return mean.item()


def plain(models: Models) -> torch.Tensor:
    """The textbook: F.cross_entropy and F.kl_div of the scored rows."""
    (student_NV, teacher_NV), labels_N = (
        (x.flatten(0, 1) for x in models.logits()),
        models.batch.labels[:, 1:].flatten(),
    )
    scored_N = labels_N != -100
    if not scored_N.all():
        student_NV, teacher_NV, labels_N = student_NV[scored_N], teacher_NV[scored_N], labels_N[scored_N]
    log_q_NV, log_p_NV = F.log_softmax(student_NV / TAU, -1), F.log_softmax(teacher_NV / TAU, -1)
    soft = KD * TAU**2 * F.kl_div(log_q_NV, log_p_NV, log_target=True, reduction="batchmean")
    if not models.weights.ce_weight:
        return soft
    return models.weights.ce_weight * F.cross_entropy(student_NV, labels_N) + soft


def of_logits(subject: Any, models: Models) -> torch.Tensor:
    """A peer's loss of logits."""
    labels = models.batch.labels[:, 1:]
    loss = subject.kd_loss(*models.logits(), labels, temperature=TAU, ce_weight=CE, kd_weight=KD)
    mean: torch.Tensor = loss.sum / loss.count
    return mean


def step(models: Models, *, chunked: bool = True, metrics: bool = False) -> float:
    """A micro-batch as the training loop takes it, read in one transfer."""
    models.student.zero_grad()
    V, weights = models.vocabulary, models.weights
    usual = heads.LEAST_VOCABULARY
    heads.LEAST_VOCABULARY = 0 if chunked else V + 1
    try:
        providers = ModuleTeacher(models.teacher, V), ModuleStudent(models.student, V)
        window = kd_window(*providers, [models.batch], weights, metrics=metrics)
    finally:
        heads.LEAST_VOCABULARY = usual
    total, *_, count = torch.stack([*window.sums.values(), window.total]).tolist()
    return float(total / count)


def trl_chunked(models: Models) -> float:
    """The divergence of TRL's stable `DistillationTrainer`, of hidden states and output layers in tiles of both."""
    from trl.kernels import chunked_divergence

    models.student.zero_grad()
    scored_N = models.batch.labels[:, 1:].flatten() != -100
    arguments: list[Any] = []
    for model in (models.student, models.teacher):
        layer, states = model.get_output_embeddings(), list[torch.Tensor]()
        hook = layer.register_forward_pre_hook(lambda layer, inputs, states=states: states.append(inputs[0]))
        layer.forward = lambda hidden: hidden[..., :0]  # the trainer asks for hidden states alone
        try:
            with torch.set_grad_enabled(model is models.student):
                model(models.batch.tokens)
        finally:
            hook.remove()
            del layer.forward
        weight = layer.weight if model is models.student else layer.weight.detach()
        arguments += [states[0][:, :-1].flatten(0, 1)[scored_N], weight, layer.bias]
    # It looks for weights that DeepSpeed has divided, for which it imports accelerate's state.
    with patch.object(chunked_divergence, "maybe_gather_lm_head_ctx", lambda *tensors: nullcontext()):
        rescaling = (1.0, models.cap, 1.0, models.cap)
        nats_N, _ = chunked_divergence.ChunkedDivergenceFunction.apply(*arguments, 0.0, TAU, *rescaling)
        total: torch.Tensor = KD * TAU**2 * nats_N.mean()
        total.backward()
    return total.item()


def divergences_alone() -> dict[str, Callable[[Models], float]]:
    """Return the variants that need no labels."""
    chosen: dict[str, Callable[[Models], float]] = {PLAIN: partial(with_autograd, plain), CHUNKED: step}
    try:
        import_module("trl.kernels.chunked_divergence")
    except ImportError as error:
        print(f"TRL is left out: {error}; install the extra `bench`")
    else:
        chosen["TRL ChunkedDivergenceFunction"] = trl_chunked
    return chosen


def variants() -> dict[str, Callable[[Models], float]]:
    chosen: dict[str, Callable[[Models], float]] = {
        PLAIN: partial(with_autograd, plain),
        ALL_AT_ONCE: partial(step, chunked=False),
        CHUNKED: step,
        "step with metrics": partial(step, metrics=True),
    }
    try:
        gkd = import_module("falsifiers.peers.trl").gkd
    except ImportError as error:
        print(f"TRL is left out: {error}; install the extra `bench`")
    else:
        chosen["TRL generalized_jsd_loss"] = partial(with_autograd, partial(of_logits, gkd))
    return chosen


def check(models: Models, chosen: dict[str, Callable[[Models], float]]) -> None:
    """Stop unless all variants have the loss and the gradients of plain PyTorch."""
    seen = {}
    for name, variant in chosen.items():
        loss = variant(models)
        seen[name] = loss, [each.grad.clone() for each in models.student.parameters() if each.grad is not None]
    expected, gradients = seen[PLAIN]
    for name, (loss, own) in seen.items():
        worst = max(float((a - b).norm() / b.norm()) for a, b in zip(own, gradients, strict=True))
        if max(abs(loss / expected - 1), worst) > 1e-4:
            raise SystemExit(f"{name} computes another objective: loss {loss}, expected {expected}; gradients {worst}")


def compare(title: str, models: Models, chosen: dict[str, Callable[[Models], float]], rounds: int) -> None:
    """Print time and memory of each variant, and both as a share of plain PyTorch."""
    times = taken(models, chosen, rounds)
    models.student.zero_grad()  # the gradients of the last variant are no memory that the next one has
    peaks = {name: peak_bytes(models, variant) for name, variant in chosen.items()}
    print(
        f"\n| {title} | time, of plain | CPU s: fastest, slowest | memory, of plain | peak MiB |\n|---|---|---|---|---|"
    )
    for name, of_name in times.items():
        seconds = [each.cpu for each in of_name]
        pairs = zip(of_name, times[PLAIN], strict=True)
        ratio = statistics.median(one.cpu / other.cpu for one, other in pairs)
        spread = f"{min(seconds):.2f}, {max(seconds):.2f}"
        memory = f"{peaks[name] / peaks[PLAIN]:.2f} | {peaks[name] / MIB:.0f}"
        print(f"| {name} | {ratio:.2f} | {spread} | {memory} |", flush=True)


SWEEP = [(256, 8_192), (1024, 8_192), (4096, 8_192), (1024, 256), (1024, 32_000)]


def sweep(rounds: int) -> None:
    """Print nanoseconds and bytes for each logit of one model, of models so narrow that the loss is most of it."""
    shapes = ((1, 64), (1, 64))
    chosen = {name: variant for name, variant in variants().items() if name in (PLAIN, ALL_AT_ONCE, CHUNKED)}
    print(f"\n| N | V | {' | '.join(f'{name}, ns | bytes' for name in chosen)} |\n|{'---|' * (2 + 2 * len(chosen))}")
    for rows, vocabulary in SWEEP:
        models = Models(rows, vocabulary, scored=1.0, shapes=shapes)
        times, logits = taken(models, chosen, rounds), rows * vocabulary
        models.student.zero_grad()
        cells = []
        for name, variant in chosen.items():
            seconds = statistics.median(each.cpu for each in times[name])
            cells.append(f"{1e9 * seconds / logits:.1f} | {peak_bytes(models, variant) / logits:.1f}")
        print(f"| {rows:,} | {vocabulary:,} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    chosen = variants()
    for vocabulary, cap in ((32_000, None), (32_000, 30.0), (152_064, None)):
        models = Models(1024 if vocabulary < 100_000 else 512, vocabulary, scored=1.0, cap=cap, ce_weight=0.0)
        alone = divergences_alone()
        check(models, alone)
        title = f"V = {vocabulary:,}, divergence alone{f', soft cap of {cap:g}' if cap else ''}"
        compare(title, models, alone, rounds)
    compare("V = 152,064, every row scored", Models(1024, 152_064, scored=1.0), chosen, rounds)
    for title, scored in (("every row scored", 1.0), ("half of the rows scored", 0.5)):
        models = Models(1024, 32_000, scored=scored)
        check(models, chosen)
        compare(f"V = 32,000, {title}", models, chosen, rounds)
    sweep(rounds)


if __name__ == "__main__":
    main()
