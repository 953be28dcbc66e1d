"""Predict the memory of a rank (by part) and the steps, tokens and time of a run, without weights or training.

Models are created on PyTorch's meta device from their configurations. Weights, gradients and states of the optimizer
are exact, except a state that cannot be created there; the other parts are estimates. The CUDA context and
fragmentation take 1 to 3 GiB more, not included here.

Shape letters: B rows of a batch, T positions, V vocabulary, W width, H heads, L layers, R ranks.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, runtime_checkable

import torch
from safetensors import safe_open
from torch import Tensor, nn

from reference_trainer.callbacks.progress import SilentLines
from reference_trainer.config.settings import Settings
from reference_trainer.data.text import Batches, ShuffledBatches
from reference_trainer.distillation.features import FeatureMatching
from reference_trainer.distillation.heads import CHUNK_BYTES, LEAST_VOCABULARY
from reference_trainer.distillation.objective import IGNORE_INDEX
from reference_trainer.distillation.step import labels_of_logits
from reference_trainer.errors import DataError, ModelFileError, SettingError
from reference_trainer.pipeline.custom_class import create_run
from reference_trainer.pipeline.defaults import resumed_settings
from reference_trainer.pipeline.distill import Distillation
from reference_trainer.pipeline.teachers import PACKAGED, untrained_teacher
from reference_trainer.plan.schedule import Schedule, count_steps
from reference_trainer.storage.export import has_weights, weight_files
from reference_trainer.training.update import layers_of

COUNTED_BATCHES = 1000
"""Tokens are counted in every N-th batch of an epoch; N is the number of batches divided by this number, at least 1."""
UNKNOWN_STATE = 2
"""Assumed number of state values per weight, as for AdamW, if the state of an optimizer cannot be created."""
GIB = 2**30


@runtime_checkable
class HasShapes(Protocol):
    """A `StudentSource` or `TeacherSource` that can create its module without weights."""

    def shapes(self) -> nn.Module:
        """Return the module on the meta device."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The predicted needs of a run.

    Attributes:
        memory: Predicted bytes on a rank, by part.
        ranks: Number of ranks.
        parameters: Numbers of all and of trained parameters of the student.
        steps: Number of optimizer steps; None without readable data.
        predicted_tokens: Number of tokens with a loss, summed over all steps; an estimate for long epochs. None without
            readable data, and for batches other than `ShuffledBatches`.
        largest_step: Largest number of tokens of a step of all ranks, with padding.
        notes: Lines about values that could not be read or counted.
    """

    memory: Mapping[str, int]
    ranks: int
    parameters: tuple[int, int]
    steps: int | None
    predicted_tokens: int | None
    largest_step: int
    notes: tuple[str, ...] = ()


def plan(settings: Settings, *, ranks: int = 1) -> Plan:
    """Return the predicted needs of a run. Chats are tokenised and cached, as by the run itself.

    Args:
        settings: The settings of the run.
        ranks: The number of processes.

    Raises:
        ModelFileError: If the configuration of a model cannot be read.
        SettingError: If the run would refuse the settings, or custom parts make the student.
    """
    variables = {} if ranks == 1 else {"RANK": "0", "WORLD_SIZE": str(ranks), "LOCAL_RANK": "0"}
    settings = resumed_settings(settings)
    is_eager = settings.run.attn_implementation == "eager"
    # Plan without the attention implementation, whose package may be missing on this machine.
    settings = settings.replace(attn_implementation=None)
    with create_run(settings, Distillation, lines=SilentLines(), environment=variables) as run:
        # 1. Models and optimizer, on the meta device.
        run.device = torch.device("cpu")
        notes, settings = list[str](), run.settings
        run.student = student = _student(run)
        run.features = FeatureMatching()
        if settings.objective.feature_weight or settings.objective.feature_weight_end:
            notes.append("memory: projections of hidden states are not counted")
        sharing_ranks = ranks if run.is_student_sharded else 1
        trained, optimizer_notes = trained_bytes(
            student, partial(run.make_optimizer, list(student.parameters())), ranks=sharing_ranks
        )
        vocabulary = _config_of(student)["vocabulary"]
        teacher = _teacher_bytes(run)
        passes = _pass_bytes(settings, student, vocabulary, has_teacher=bool(teacher), is_eager=is_eager, ranks=ranks)
        steps = predicted_tokens = None
        place = settings.student.model
        if place is not None and place.is_dir() and not has_weights(place):
            notes.append(f"student: {place} has no weights; a run would begin with random ones")
        # 2. The data, without the LoRA adapter: data do not depend on it, and a student without weights cannot have it.
        run.settings = settings.replace(lora=None)
        try:
            batches = run.make_batches()
            schedule = _schedule(settings, batches)
            steps, predicted_tokens = schedule.total_steps, _predicted_tokens(batches, schedule)
        except (DataError, ModelFileError) as error:
            notes.append(f"steps: unknown, as data and tokenizer are needed: {error}")
        return Plan(
            memory={**trained, "teacher": teacher, **passes},
            ranks=ranks,
            parameters=(_count(student.parameters()), _count(p for p in student.parameters() if p.requires_grad)),
            steps=steps,
            predicted_tokens=predicted_tokens,
            largest_step=ranks * settings.optimizer.accumulate * settings.data.batch_size * settings.data.length,
            notes=(*notes, *optimizer_notes),
        )


def plan_lines(needs: Plan, *, tokens_per_s: float | None = None) -> list[str]:
    """Return the lines that describe a plan. tokens_per_s: predicted tokens per second of all ranks, if known."""
    total, trained = needs.parameters
    lines = [f"student: {total:,} parameters, {trained:,} trained", f"ranks: {needs.ranks}"]
    lines += [f"memory: {_size(size)} {part}" for part, size in needs.memory.items() if size]
    lines.append(f"memory: {_size(sum(needs.memory.values()))} per rank in total, plus 1 to 3 GiB for CUDA itself")
    lines.append(f"tokens of a step: at most {needs.largest_step:,}, with padding")
    if needs.steps is not None:
        lines.append(f"steps: {needs.steps:,}")
    if needs.predicted_tokens is not None:
        lines.append(f"predicted tokens: {needs.predicted_tokens:,}")
        if tokens_per_s is None:
            lines.append("time: --smoke 20 measures steps here and projects the run; or give --tokens-per-s")
        else:
            lines.append(f"time: {needs.predicted_tokens / tokens_per_s / 3600:.2f} h at {tokens_per_s:,.0f} tokens/s")
    return [*lines, *needs.notes]


def _size(number: int) -> str:
    return f"{number / GIB:7.2f} GiB" if number >= GIB / 10 else f"{number / 2**20:7.2f} MiB"


def trained_bytes(
    student: nn.Module, make_optimizer: Callable[[], torch.optim.Optimizer], *, ranks: int = 1
) -> tuple[dict[str, int], list[str]]:
    """Return the bytes of weights, gradients and optimizer states of the first rank, by part, and notes.

    The bytes are the sizes of the tensors, without the gaps of the allocator.

    Args:
        student: The student on the meta device.
        make_optimizer: Returns the optimizer of the student's parameters.
        ranks: The number of ranks that share the student; 1 if each has a copy. FSDP2 divides a tensor along its first
            axis, and the first ranks have the larger parts.
    """
    # An optimizer creates its state in its first step, so take one on the meta device, where nothing is computed. The
    # groups are stepped one at a time: a step that fails leaves the groups after it without state.
    parameters = [parameter for parameter in student.parameters() if parameter.requires_grad]
    optimizer = make_optimizer()
    groups, notes, assumed = list(optimizer.param_groups), list[str](), 0
    for parameter in parameters:
        parameter.grad = torch.empty_like(parameter)
    for group in groups:
        optimizer.param_groups = [group]
        try:
            optimizer.step()
        except Exception:  # a step that reads values raises; most optimizers have created their state before
            missing = [parameter for parameter in group["params"] if not optimizer.state.get(parameter)]
            assumed += UNKNOWN_STATE * sum(_bytes(parameter, ranks) for parameter in missing)
    optimizer.param_groups = groups
    if assumed:
        notes.append(f"memory: the state of {type(optimizer).__name__} is estimated as AdamW's")
    states = [value for state in optimizer.state.values() for value in state.values() if isinstance(value, Tensor)]
    return {
        "weights": sum(_bytes(tensor, ranks) for tensor in student.parameters())
        + sum(_bytes(tensor, 1) for tensor in student.buffers()),
        "gradients": sum(_bytes(parameter, ranks) for parameter in parameters),
        "optimizer state": assumed + sum(_bytes(value, ranks) for value in states),
    }, notes


def _bytes(tensor: Tensor, ranks: int) -> int:
    """Return the bytes of the first part of a tensor that is divided along its first axis among `ranks`."""
    if not tensor.dim():
        return tensor.element_size()
    return math.ceil(tensor.shape[0] / ranks) * math.prod(tensor.shape[1:]) * tensor.element_size()


def _count(parameters: Iterable[nn.Parameter]) -> int:
    return sum(parameter.numel() for parameter in parameters)


def _student(run: Distillation) -> nn.Module:
    """Return the student on the meta device."""
    if "make_student" in run.replaced:
        raise SettingError(f"--dry-run cannot know the student of {type(run).__name__}; leave out --parts")
    if isinstance(run.recipe.student, HasShapes):
        return run.recipe.student.shapes()
    with torch.device("meta"):
        return run.make_student().to("meta")  # the random weights of a decoder are drawn on the CPU


def _teacher_bytes(run: Distillation) -> int:
    """Return the bytes of the weights of the teacher on a rank."""
    settings = run.settings
    ranks = run.place.world_size if run.is_sharded else 1
    if settings.teacher.outputs is not None or settings.teacher.url is not None:
        return 0
    if isinstance(run.recipe.teacher, HasShapes):
        teacher = run.recipe.teacher.shapes()
        gathered = _gathered_bytes(teacher) if ranks > 1 else 0
        return gathered + _quantized_bytes(teacher, json.loads(settings.teacher.quantization or "{}"), ranks)
    if settings.trains_teacher:
        return sum(_bytes(tensor, ranks) for tensor in untrained_teacher(settings, torch.device("meta")).parameters())
    # Read the shapes of the tensors from the headers of the files.
    numbers, item = 0, 8 if settings.run.dtype == "float64" else 4  # text teachers are converted when they are loaded
    for path in weight_files(settings.teacher.model or PACKAGED):
        with safe_open(path, framework="pt") as file:
            shapes = [file.get_slice(name).get_shape() for name in file.keys()]
        numbers += sum(math.ceil(shape[0] / ranks) * math.prod(shape[1:]) for shape in shapes)
    return numbers * item


def _quantized_bytes(teacher: nn.Module, options: Mapping[str, Any], ranks: int) -> int:
    """Return the bytes of a teacher whose linear layers, except the output layer, are quantized by the options."""
    bits = options.get("bits") or (4 if options.get("load_in_4bit") else 8 if options.get("load_in_8bit") else None)
    model: Any = teacher
    output_layer = model.get_output_embeddings()
    quantized = {
        id(module.weight)
        for module in teacher.modules()
        if bits and isinstance(module, nn.Linear) and module is not output_layer
    }
    return sum(
        math.ceil(parameter.numel() * bits / 8) if bits and id(parameter) in quantized else _bytes(parameter, ranks)
        for parameter in teacher.parameters()
    )


def _config_of(module: nn.Module) -> dict[str, int]:
    """Return vocabulary, width, heads and layers of a model."""
    model: Any = getattr(module, "model", module)
    config = model.config.get_text_config() if hasattr(model.config, "get_text_config") else model.config

    def first(*names: str) -> int:
        return int(next(value for name in names if isinstance(value := getattr(config, name, None), int)))

    # Keys of Llama and most models, of this package's decoder, and of GPT-2.
    return {
        "vocabulary": first("vocab_size"),
        "width": first("hidden_size", "width", "n_embd"),
        "heads": first("num_attention_heads", "heads", "n_head"),
        "layers": first("num_hidden_layers", "layers", "n_layer"),
    }


def _pass_bytes(
    settings: Settings, student: nn.Module, vocabulary: int, *, has_teacher: bool, is_eager: bool, ranks: int
) -> dict[str, int]:
    """Return estimates of the bytes of a forward and a backward pass, without weights, gradients and states, by part.

    The activations of a layer, in 16-bit numbers, take

        34 B T W + 5 B H T^2   bytes with `eager` attention, which stores its scores
        34 B T W               bytes with another attention
        2 B T W                bytes if activations are recomputed; plus, once, one layer as in the lines above

    32-bit numbers take twice as much, 64-bit numbers four times. Source: Korthikanti et al. 2022, arXiv:2205.05198,
    section 4.1, equation 2, and section 5.
    """
    # Activations by the formula above. `states` is B T W, times 1, 2 or 4 for numbers of 16, 32 or 64 bits.
    shape, positions = _config_of(student), settings.data.batch_size * settings.data.length
    scale = {"bfloat16": 1, "float32": 2, "float64": 4}[settings.run.dtype]
    states = positions * shape["width"] * scale
    scores = 5 * shape["heads"] * settings.data.length * positions * scale
    layer = 34 * states + (scores if is_eager else 0)
    recomputed = settings.student.checkpoint_activations
    activations = 2 * states * shape["layers"] + layer if recomputed else layer * shape["layers"]

    # Logits: of all positions, or of one chunk if the vocabulary is large.
    item = {"bfloat16": 2, "float32": 4, "float64": 8}[settings.run.dtype]
    rows = positions
    logits = "logits"
    if vocabulary >= LEAST_VOCABULARY:
        rows, logits = min(positions, max(1, CHUNK_BYTES // (vocabulary * item))), "logits of a chunk"
    trained = [parameter for parameter in student.parameters() if parameter.requires_grad]
    sharded = ranks > 1 and settings.run.strategy == "fsdp2"
    parts = {
        "activations (estimate)": activations,
        f"{logits}, of both models (estimate)": rows * vocabulary * item * (2 if has_teacher else 1),
    }
    # Copies of weights and gradients.
    if settings.run.dtype == "bfloat16" and settings.student.weights != "bfloat16" and not sharded:
        weights = [module.weight for module in student.modules() if isinstance(module, nn.Linear)]
        parts["copies of weights in bfloat16 (autocast)"] = sum(2 * weight.numel() for weight in weights)
    if ranks > 1 and not sharded:
        parts["buffers of DDP"] = sum(_bytes(parameter, 1) for parameter in trained)
    if sharded:
        share = 2 / 4 if settings.run.dtype == "bfloat16" and settings.student.weights == "float32" else 1
        parts["weights that FSDP2 gathers (estimate)"] = int(share * _gathered_bytes(student))
    return parts


def _gathered_bytes(module: nn.Module) -> int:
    """Return the bytes that FSDP2 gathers at a time: weights outside of layers, the current and the next layer."""
    layers = [sum(_bytes(parameter, 1) for parameter in layer.parameters()) for layer in layers_of(module)]
    return sum(_bytes(parameter, 1) for parameter in module.parameters()) - sum(layers) + 2 * max(layers, default=0)


def _schedule(settings: Settings, batches: Batches) -> Schedule:
    """Return a schedule with only those settings of a run that decide the number of steps."""
    return Schedule(
        epochs=settings.schedule.epochs,
        steps_per_epoch=count_steps(batches.batches, settings.optimizer.accumulate),
        limit=settings.run.smoke or settings.schedule.max_steps,
    )


def _predicted_tokens(batches: Batches, schedule: Schedule) -> int | None:
    """Return the number of tokens with a loss in all steps of all ranks; None unless the batches are `ShuffledBatches`.

    The number is an estimate if not all batches of an epoch are counted (see `COUNTED_BATCHES`), or the last epoch
    is not complete.
    """
    if not isinstance(batches, ShuffledBatches):
        return None
    # Count the batches of all ranks, as if one process had them all.
    all_batches = replace(batches, rank=0, world_size=1)
    spacing = max(1, all_batches.batches // COUNTED_BATCHES)
    counted = range(1, all_batches.batches + 1, spacing)
    tokens = 0
    for position in counted:
        tokens += int((labels_of_logits(all_batches.batch(1, position).labels) != IGNORE_INDEX).sum())
    epoch = tokens * all_batches.batches / len(counted)
    return round(epoch * schedule.total_steps / schedule.steps_per_epoch)
