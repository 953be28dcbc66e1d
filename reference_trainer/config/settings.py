"""The settings of a distillation. One declaration gives a setting its type, flag, variable, key, default and help.

`find_unused` names settings that have no effect beside the others. Importing this module never imports torch.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from reference_trainer.config.kinds import (
    Count,
    CountOrZero,
    Depth,
    Device,
    Distance,
    Divergence,
    Documents,
    Dtype,
    GradientNorm,
    Import,
    JSONObject,
    Layers,
    LearningRate,
    Length,
    Location,
    Mode,
    Part,
    Rates,
    Seconds,
    Shape,
    Share,
    Strategy,
    Switch,
    Temperature,
    Text,
    Turns,
    Vocabulary,
    Weight,
    Weights,
    Width,
    origin,
    refusal,
)
from reference_trainer.distillation.objective import DIVERGENCES, WITH_BETA


def _setting(default: object, help: str, *, alias: str | None = None) -> Any:
    """Declare a setting; `alias` is an older environment variable for it."""
    return Field(default, description=help, validation_alias=alias)


class Settings(BaseModel):
    """The settings of a distillation; immutable.

    The constructor reads neither environment nor files. Raise `SettingError`, which names the setting, its value and
    the allowed values, for a value outside its domain, an unknown setting, and settings that exclude each other.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", validate_by_name=True, validate_by_alias=False)

    data: Location | None = _setting(
        None, "Text to train on, read as bytes; do not change it during a run. [default: packaged English text]"
    )
    data_share: Part | None = _setting(
        None, "Train the student on the first X of what is not held back. [default: a sixth, or 1 with --data]"
    )
    out: Location = _setting(Path("distilled"), "Directory for model.safetensors, config.json and manifest.json.")
    force: Switch = _setting(False, "Overwrite existing files in --out and --trace.")
    trace: Location | None = _setting(None, "Write every lifecycle event to this file, one JSON object per line.")
    callbacks: Location | None = _setting(
        None, "Call the callbacks that this TOML file names, by import path and JSON arguments."
    )
    parts: Import | None = _setting(
        None,
        "Own models, data or export: MODULE:CLASS, a subclass of Distillation, or of HuggingFace with --student.",
    )
    arguments: JSONObject | None = _setting(None, "Arguments of the class that --parts names, as a JSON object.")
    teacher: Location | None = _setting(
        None, "Directory of a trained teacher. [default: the packaged one, or with --data one that is trained first]"
    )
    shard_teacher: Switch = _setting(
        False, "With several processes: each has a shard of the teacher (FSDP2), which is gathered layer by layer."
    )
    teacher_device_map: Text | None = _setting(
        None, "Spread a Hugging Face teacher over the devices of a process, such as auto, by from_pretrained."
    )
    teacher_outputs: Location | None = _setting(
        None, "Read the teacher's outputs from this directory, which `precompute` has written; no teacher is run."
    )
    teacher_url: Text | None = _setting(
        None,
        "Ask the server at this URL, such as `vllm serve`, for a teacher's most probable tokens; no teacher is run.",
    )
    teacher_model: Text | None = _setting(
        None, "Name of the model of --teacher-url. [default: the one that the server has]"
    )
    teacher_top_k: Count = _setting(20, "Ask --teacher-url for the N most probable tokens of each position.")
    student: Location | None = _setting(
        None,
        "Begin with this Hugging Face model, a directory or an id; --teacher is one too, and --data a file of chats.",
    )
    turns: Turns = _setting("every", "Predict every answer of a chat, or the last only.")
    chat_template: Location | None = _setting(
        None, "Write chats by the chat template in this file. [default: that of --student]"
    )
    template_options: JSONObject | None = _setting(
        None, "Variables of the chat template, as a JSON object, such as enable_thinking."
    )
    eval_data: Location | None = _setting(
        None, "Evaluate Hugging Face models on this file of chats. [default: the last tenth of --data is held back]"
    )
    eval_rows: CountOrZero = _setting(
        256, "Evaluate Hugging Face models on at most N conversations, evenly chosen from all; 0 takes all."
    )
    data_cache: Location | None = _setting(
        None, "Directory of the tokens of chats, which are made once. [default: reference_trainer in ~/.cache]"
    )
    data_cache_gib: CountOrZero = _setting(
        20, "Keep at most N GiB of tokens of chats; those used least recently are removed. 0 keeps all."
    )
    checkpoint_activations: Switch = _setting(
        False, "Compute the activations of a Hugging Face student again in the backward pass, to save memory."
    )
    lora: Count | None = _setting(
        None, "Train a LoRA adapter of this rank instead of the weights of --student; the output is the adapter."
    )
    lora_options: JSONObject | None = _setting(
        None, "Options of peft's LoraConfig, as a JSON object, such as target_modules. [default: all linear layers]"
    )
    lora_merge: Switch = _setting(False, "Write the student with its adapter merged into the weights.")
    teacher_steps: Count | None = _setting(
        None, "Train a teacher of N steps on the same text first, unless it is cached. [default: 1000 with --data]"
    )
    teacher_layers: Count = _setting(4, "Number of layers of a teacher that is trained.")
    teacher_width: Width = _setting(128, "Hidden width of a teacher that is trained.")
    teacher_cache: Location | None = _setting(
        None, "Directory of cached teachers. [default: reference_trainer in ~/.cache]"
    )
    layers: Count = _setting(1, "Number of layers of the student.")
    width: Width = _setting(32, "Hidden width of the student.")
    length: Length = _setting(64, "Sequence length in bytes; in tokens with --student.")
    documents: Documents | None = _setting(
        None, "Rows of whole documents: pad each to the longest of its batch, or pack several. [default: any cut]"
    )
    separator: Text | None = _setting(None, "Text at the end of a document, for --documents. [default: an empty line]")
    share_vocabulary: Vocabulary | None = _setting(
        None, "Accept a teacher with more or fewer tokens: cut its surplus, cut the student's, or add -inf."
    )
    batch_size: Count = _setting(8, "Number of sequences per batch.")
    accumulate: Count = _setting(1, "Number of batches per optimizer step; their gradient is that of one large batch.")
    epochs: Count = _setting(3, "Number of epochs.")
    max_steps: Count | None = _setting(
        None,
        "End the run after N steps and save model and checkpoint; the learning-rate schedule still spans the full run.",
    )
    smoke: Count | None = _setting(
        None, "Run N steps, report whether a full run looks healthy, save nothing.", alias="APR_DISTILL_MAX_STEPS"
    )
    temperature: Temperature = _setting(1.0, "Divide the logits of both models by X.")
    ce_weight: Weight = _setting(0.0, "Weight of the cross-entropy with the text.")
    kd_weight: Weight = _setting(1.0, "Weight of the divergence from the teacher.")
    divergence: Divergence = _setting("forward_kl", f"Divergence from the teacher: {', '.join(DIVERGENCES.values())}.")
    beta: Share = _setting(0.5, f"The teacher's share of the mixture of {' and '.join(WITH_BETA)}.")
    on_policy: Share = _setting(
        0.0, "Share of the batches whose answers --student generates itself, in place of the answers of --data."
    )
    answer_tokens: Count = _setting(256, "Generate at most N tokens of an answer.")
    answer_temperature: Temperature = _setting(1.0, "Divide the logits by X when answers are generated.")
    answer_top_p: Part = _setting(
        1.0, "Generate answers of the most probable tokens alone, which have X of the probability together."
    )
    feature_weight: Weight = _setting(0.0, "Weight of the distance of hidden states; 0 computes none.")
    feature_distance: Distance = _setting(
        "cosine", "Distance of hidden states: 1 - cosine, or mean squared difference."
    )
    feature_layers: Layers = _setting(
        "-1:-1", "Layers that are compared, STUDENT:TEACHER, from 0; -1 is the last. Several are averaged."
    )
    anneal: Shape = _setting("linear", "How a value goes to its end over the run, where one of the following is given.")
    temperature_end: Temperature | None = _setting(None, "Temperature of the last step. [default: --temperature]")
    ce_weight_end: Weight | None = _setting(None, "Cross-entropy weight of the last step. [default: --ce-weight]")
    kd_weight_end: Weight | None = _setting(None, "Weight of the divergence in the last step. [default: --kd-weight]")
    feature_weight_end: Weight | None = _setting(
        None, "Weight of the hidden states in the last step. [default: --feature-weight]"
    )
    on_policy_end: Share | None = _setting(None, "Share of --on-policy in the last step. [default: --on-policy]")
    anneal_warmup: CountOrZero = _setting(
        0, "Number of steps over which weights with an end rise from 0 to their start, before they go to the end."
    )
    lr: LearningRate = _setting(3e-3, "Peak learning rate of AdamW; by default 2e-5 for a --student with weights.")
    clip: GradientNorm | None = _setting(None, "Largest norm of a step's gradient; a longer one is scaled down to it.")
    warmup: CountOrZero = _setting(50, "Number of steps over which the learning rate rises to --lr.")
    schedule: Rates = _setting(
        "cosine",
        "Course of the learning rate after its rise; wsd is constant, and falls linearly at the end.",
    )
    lr_end: Share = _setting(0.1, "Learning rate of the last step, as a fraction of --lr.")
    lr_decay: Count | None = _setting(
        None, "Number of steps over which --schedule wsd falls. [default: a fifth of the run]"
    )
    seed: CountOrZero = _setting(0, "Seed of the initial weights and the data order.")
    device: Device = _setting("auto", "Device to compute on; auto selects cuda if it is available.")
    threads: Count | None = _setting(
        None, "Number of threads that a process computes with on the CPU. [default: OMP_NUM_THREADS, or 1]"
    )
    strategy: Strategy = _setting(
        "ddp", "With several processes: each has a copy of the student (ddp), or a shard of it (fsdp2)."
    )
    rank_timeout: Count = _setting(600, "Number of seconds after which a process gives up waiting for the others.")
    dtype: Dtype = _setting("float32", "Data type; bfloat16 keeps float32 weights and uses autocast.")
    weights: Weights = _setting(
        "float32",
        "Data type of the weights of --student; with bfloat16 they are rounded after a step on float32 copies.",
    )
    log_every: CountOrZero = _setting(10, "Log every N steps; 0 logs epochs only.", alias="APR_DISTILL_LOG_EVERY")
    eval_every: CountOrZero = _setting(0, "Evaluate on held-back text every N steps; 0 does so only after the run.")
    accept_depth: Depth = _setting(
        0, "Measure in evaluations how many of N tokens of a draft the teacher accepts, as eval/accept_length; 0: none."
    )
    best_metric: Text = _setting("eval/hard_loss", "Metric of --eval-every whose best step is saved and kept.")
    best_mode: Mode = _setting("min", "Whether a smaller or a larger value of --best-metric is better.")
    best_min_delta: Weight = _setting(0.0, "Take a step for better only if it is by more than X.")
    save_every: CountOrZero = _setting(
        5000,
        "Save a checkpoint every N steps and after the last; 0 saves none.",
        alias="APR_DISTILL_CHECKPOINT_EVERY",
    )
    keep: CountOrZero = _setting(3, "Keep the last N checkpoints, and the best one; 0 keeps all.")
    resume: Location | None = _setting(
        None, "Go on from this checkpoint, or from latest or best in --out; text, models and settings must be the same."
    )
    init_from: Location | None = _setting(
        None, "Begin with the weights of this checkpoint or model; optimizer, steps and learning rate start anew."
    )
    rewind: Switch = _setting(False, "Set checkpoints in --out aside that are later than where the run goes on.")
    hang_after: Seconds = _setting(
        3600.0, "Print every thread's stack and exit with code 1 after S seconds without a step; 0 never does."
    )
    project_to_steps: Count = _setting(
        50000, "Length in steps of the full run whose time --smoke projects.", alias="APR_DISTILL_PROJECT_TO_STEPS"
    )

    @property
    def trains_teacher(self) -> bool:
        """Whether a run trains its teacher, or reads one from the cache: because it is asked to, or for an own text."""
        has_teacher = any((self.teacher, self.teacher_outputs, self.teacher_url))
        return not has_teacher and (self.teacher_steps is not None or self.data is not None)

    if not TYPE_CHECKING:  # a type checker checks the fields that are given instead

        def __init__(self, **values: object) -> None:
            try:
                super().__init__(**values)
            except ValidationError as error:
                raise refusal(error, type(self).model_fields) from None

    @model_validator(mode="wrap")
    @classmethod
    def _check_together(cls, values: Any, validate: ModelWrapValidatorHandler[Settings]) -> Settings:
        settings = validate(values)
        if settings.smoke is not None and settings.max_steps is not None:
            smoke, limit = (origin(name, values[name]) for name in ("smoke", "max_steps"))
            raise _conflict(
                f"conflicting settings: {smoke} is {settings.smoke} and {limit} is {settings.max_steps}; "
                "give one of them: a smoke run ends after its own number of steps and saves nothing"
            )
        if settings.smoke is not None and settings.resume is not None:
            smoke, resume = (origin(name, values[name]) for name in ("smoke", "resume"))
            raise _conflict(
                f"conflicting settings: {smoke} is {settings.smoke} and {resume} is {settings.resume}; "
                "give one of them: a smoke run starts over and saves nothing"
            )
        if settings.smoke is not None and settings.rewind:
            smoke, rewind = (origin(name, values[name]) for name in ("smoke", "rewind"))
            raise _conflict(
                f"conflicting settings: {smoke} is {settings.smoke} and {rewind} is true; "
                "give one of them: a smoke run changes no checkpoint"
            )
        if not (settings.ce_weight or settings.kd_weight or settings.ce_weight_end or settings.kd_weight_end):
            raise _conflict("conflicting settings: 'ce_weight' and 'kd_weight' are both 0; expected one above 0")
        return settings


def _conflict(message: str) -> PydanticCustomError:
    return PydanticCustomError("conflicting_settings", "{message}", {"message": message})


def schema() -> str:
    """Return the JSON Schema of a settings file, as text."""
    return json.dumps(Settings.model_json_schema(by_alias=False), indent=2) + "\n"


def _weights_end(settings: Settings) -> bool:
    ends = (settings.ce_weight_end, settings.kd_weight_end, settings.feature_weight_end)
    return any(end is not None for end in ends)


_NEEDED: tuple[tuple[tuple[str, ...], str, Callable[[Settings], bool]], ...] = (
    (("beta",), f"without divergence {' or '.join(WITH_BETA)}", lambda settings: settings.divergence in WITH_BETA),
    (("anneal_warmup",), "without the end of a weight, such as kd_weight_end", _weights_end),
    (
        ("anneal",),
        "without an end, such as temperature_end",
        lambda settings: (
            settings.temperature_end is not None or settings.on_policy_end is not None or _weights_end(settings)
        ),
    ),
    (
        ("feature_distance", "feature_layers"),
        "without feature_weight",
        lambda settings: bool(settings.feature_weight or settings.feature_weight_end),
    ),
    (
        ("answer_tokens", "answer_temperature", "answer_top_p"),
        "without on_policy",
        lambda settings: bool(settings.on_policy or settings.on_policy_end),
    ),
    (("lr_decay",), "without schedule wsd", lambda settings: settings.schedule == "wsd"),
    (("lr_end",), "with schedule constant", lambda settings: settings.schedule != "constant"),
    (("separator",), "without documents", lambda settings: settings.documents is not None),
    (("best_metric", "best_mode", "best_min_delta"), "without eval_every", lambda settings: settings.eval_every > 0),
    (("arguments",), "without parts", lambda settings: settings.parts is not None),
    (
        (
            *("checkpoint_activations", "data_cache", "data_cache_gib", "eval_data", "eval_rows", "lora"),
            *("teacher_device_map", "weights", "turns", "chat_template", "template_options"),
            *("on_policy", "on_policy_end", "teacher_url"),
        ),
        "without student",
        lambda settings: settings.student is not None,
    ),
    (
        ("teacher_model", "teacher_top_k"),
        "without teacher_url",
        lambda settings: settings.teacher_url is not None,
    ),
    (("lora_options", "lora_merge"), "without lora", lambda settings: settings.lora is not None),
    (("layers", "width", "separator", "data_share"), "with student", lambda settings: settings.student is None),
    (
        ("teacher_steps", "teacher_layers", "teacher_width", "teacher_cache"),
        "with teacher",
        lambda settings: settings.teacher is None and settings.teacher_outputs is None,
    ),
    (
        ("teacher_layers", "teacher_width", "teacher_cache"),
        "without teacher_steps or data",
        lambda settings: (
            settings.teacher is not None or settings.teacher_outputs is not None or settings.trains_teacher
        ),
    ),
)


def find_unused(settings: Settings) -> list[str]:
    """Return a line for each setting that differs from its default and has no effect, with the reason."""
    return [
        f"settings: {name} has no effect {reason}"
        for names, reason, is_used in _NEEDED
        for name in names
        if getattr(settings, name) != Settings.model_fields[name].default and not is_used(settings)
    ]
