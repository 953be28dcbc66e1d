"""The settings of a distillation, in groups. One declaration gives a setting its type, names, default and help.

A setting has a dotted name, such as `objective.temperature`, and a flat name, such as `temperature`: the name in its
group, unless `flat` gives another one. Flags and settings files accept both names. Environment variables, manifests and
checkpoints use the flat name.

Importing this module never imports torch.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo

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
    Loggers,
    Mode,
    ModelLocation,
    OptimizerName,
    PositiveShare,
    RateShape,
    Seconds,
    Shape,
    Share,
    SourcedValue,
    Strategy,
    Switch,
    Temperature,
    Text,
    Turns,
    Vocabulary,
    Warmup,
    Weight,
    Weights,
    Width,
    kind_of,
    path_in_json,
    refusal,
    short_repr,
)
from reference_trainer.distillation.objective import DIVERGENCES, WITH_BETA
from reference_trainer.errors import SettingError


def _setting(default: object, help: str, *, flat: str | None = None, alias: str | None = None) -> Any:
    """Declare a setting.

    Args:
        default: The default value.
        help: The text in `--help`.
        flat: The name outside its group, if it differs.
        alias: An older environment variable of the setting.
    """
    return Field(default, description=help, serialization_alias=flat, validation_alias=alias)


class _Group(BaseModel):
    """Base class of the groups; immutable. The constructor raises `SettingError` as `Settings` does."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_by_name=True, validate_by_alias=False)

    if not TYPE_CHECKING:  # a type checker uses the declared fields instead

        def __init__(self, **values: object) -> None:
            try:
                super().__init__(**values)
            except ValidationError as error:
                raise refusal(error, type(self).model_fields) from None

        # Let `Settings` validate its groups without this constructor, so that it can report the errors of all groups.
        __init__.__pydantic_base_init__ = True

    @field_validator("*", mode="wrap")
    @classmethod
    def _read(cls, value: object, validate: ValidatorFunctionWrapHandler, info: ValidationInfo) -> object:
        """Validate a value; parse it first if it is the text of a flag, variable or file."""
        if not isinstance(value, SourcedValue):
            return validate(value)
        assert info.field_name is not None, "a validator of fields gets the name of one"
        kind = kind_of(cls.model_fields[info.field_name])
        try:
            return validate(kind.read(value.value) if value.is_text else value.value)
        except ValidationError as error:
            # pydantic reports the input of an error: for `error` the bare value, for a new ValueError `value`, which
            # has the source.
            raise ValueError from error


class Data(_Group):
    """The data, its rows and its batches."""

    path: Location | None = _setting(
        None,
        "Train on this text, read as bytes; do not change the file during a run. [default: packaged English text]",
        flat="data",
    )
    share: PositiveShare | None = _setting(
        None,
        "Train the student on the first fraction X of the training rows. [default: a sixth, or 1 with --data]",
        flat="data_share",
    )
    mix: JSONObject | None = _setting(
        None,
        'Train also on these files of chats, as a JSON object of weights: {"b.jsonl": 2}; --data has the weight 1.',
    )
    length: Length = _setting(64, "Sequence length in bytes; in tokens with --student.")
    documents: Documents | None = _setting(
        None, "Make rows of whole documents: pad to the longest of a batch, or pack several. [default: cut anywhere]"
    )
    group_by_length: Switch = _setting(
        False, "Form batches of rows of similar lengths, to reduce padding; an epoch still has every row once."
    )
    separator: Text | None = _setting(None, "Text at the end of a document, for --documents. [default: an empty line]")
    batch_size: Count = _setting(8, "Number of sequences per batch.")
    turns: Turns = _setting("every", "Train on every answer of a chat, or only on the last.")
    chat_template: Location | None = _setting(
        None, "Write chats by the chat template in this file. [default: the template of --student]"
    )
    template_options: JSONObject | None = _setting(
        None, "Variables of the chat template, as a JSON object, such as enable_thinking."
    )
    skip_invalid_rows: Switch = _setting(
        False, "Skip and list chats that are invalid or that the chat template refuses."
    )
    workers: CountOrZero | None = _setting(
        None,
        "Tokenize chats in N processes. [default: one per CPU, at most 8; none for small data]",
        flat="data_workers",
    )
    cache: Location | None = _setting(
        None,
        "Directory of cached tokens of chats. [default: reference_trainer in ~/.cache]",
        flat="data_cache",
    )
    cache_gib: CountOrZero = _setting(
        20,
        "Keep at most N GiB of cached tokens; the least recently used are removed. 0 keeps all.",
        flat="data_cache_gib",
    )


class Student(_Group):
    """The student model, and the weights that are trained."""

    model: ModelLocation | None = _setting(
        None,
        "Train this Hugging Face model, a directory or an id; --teacher must be one too, and --data a file of chats.",
        flat="student",
    )
    revision: Text | None = _setting(None, "Branch, tag or commit of --student on the hub. [default: main]")
    layers: Count = _setting(1, "Number of layers of the student.")
    width: Width = _setting(32, "Hidden width of the student.")
    init_from: ModelLocation | None = _setting(
        None, "Begin with the weights of this checkpoint or model, but with a new optimizer and schedule, at step 0."
    )
    weights: Weights = _setting(
        "float32",
        "Data type of the weights of --student; with bfloat16, a step updates float32 copies, which are then rounded.",
    )
    lora: Count | None = _setting(
        None, "Train a LoRA adapter of this rank instead of the weights of --student; the output is the adapter."
    )
    lora_options: JSONObject | None = _setting(
        None, "Options of peft's LoraConfig, as a JSON object, such as target_modules. [default: all linear layers]"
    )
    lora_merge: Switch = _setting(False, "Write the student with its adapter merged into the weights.")
    checkpoint_activations: Switch = _setting(
        False, "Compute the activations of a Hugging Face student again in the backward pass, to save memory."
    )


class Teacher(_Group):
    """The teacher, or its stored outputs."""

    model: ModelLocation | None = _setting(
        None,
        "Directory of a trained teacher. [default: a packaged one; with --data, a teacher that the run trains first]",
        flat="teacher",
    )
    revision: Text | None = _setting(
        None,
        "Branch, tag or commit of a Hugging Face --teacher on the hub. [default: main]",
        flat="teacher_revision",
    )
    quantization: JSONObject | None = _setting(
        None, "Quantize a Hugging Face teacher: a quantization_config of transformers, as a JSON object."
    )
    outputs: Location | None = _setting(
        None,
        "Read the teacher's outputs from this directory, which `precompute` has written; no teacher is run.",
        flat="teacher_outputs",
    )
    url: Text | None = _setting(
        None,
        "Ask the server at this URL, such as `vllm serve`, for a teacher's most probable tokens; no teacher is run.",
        flat="teacher_url",
    )
    served_model: Text | None = _setting(
        None, "Name of the model of --teacher-url. [default: the only model of the server]"
    )
    top_k: Count = _setting(
        20, "Ask --teacher-url for the N most probable tokens of each position.", flat="teacher_top_k"
    )
    share_vocabulary: Vocabulary | None = _setting(
        None, "Accept a teacher with more or fewer tokens: cut logits of the teacher, of the student, or add -inf."
    )
    cross_tokenizer: Switch = _setting(
        False,
        "Accept a Hugging Face teacher with another tokenizer: each model has its own tokens of the text, and their "
        "sorted probabilities are compared wherever both models have read the same text.",
    )
    shard: Switch = _setting(
        False,
        "With several processes: keep a shard of the teacher in each (FSDP2), and gather one layer at a time.",
        flat="shard_teacher",
    )
    device_map: Text | None = _setting(
        None,
        "Spread a Hugging Face teacher over the devices of a process: device_map of from_pretrained, such as auto.",
        flat="teacher_device_map",
    )
    steps: Count | None = _setting(
        None,
        "First train a teacher for N steps on the same text, unless it is cached. [default: 1000 with --data]",
        flat="teacher_steps",
    )
    layers: Count = _setting(4, "Number of layers of a teacher that is trained.", flat="teacher_layers")
    width: Width = _setting(128, "Hidden width of a teacher that is trained.", flat="teacher_width")
    cache: Location | None = _setting(
        None, "Directory of cached teachers. [default: reference_trainer in ~/.cache]", flat="teacher_cache"
    )


class Objective(_Group):
    """The loss: temperature, weights, and their change during the run."""

    temperature: Temperature = _setting(1.0, "Divide the logits of both models by X.")
    ce_weight: Weight = _setting(0.0, "Weight of the cross-entropy with the text.")
    kd_weight: Weight = _setting(1.0, "Weight of the divergence from the teacher.")
    divergence: Divergence = _setting("forward_kl", f"Divergence from the teacher: {', '.join(DIVERGENCES.values())}.")
    beta: Share = _setting(0.5, f"The teacher's share of the mixture of {' and '.join(WITH_BETA)}.")
    on_policy: Share = _setting(
        0.0, "Share of the batches in which --student generates the answers, instead of the answers of --data."
    )
    answer_tokens: Count = _setting(256, "Generate at most N tokens of an answer.")
    answer_temperature: Temperature = _setting(1.0, "Divide the logits by X when answers are generated.")
    answer_top_p: PositiveShare = _setting(
        1.0, "Generate answers from the most probable tokens that together have the probability X (nucleus sampling)."
    )
    feature_weight: Weight = _setting(0.0, "Weight of the distance of hidden states; 0 computes none.")
    feature_distance: Distance = _setting(
        "cosine", "Distance of hidden states: 1 - cosine, or mean squared difference."
    )
    feature_layers: Layers = _setting(
        "-1:-1", "Layers to compare, STUDENT:TEACHER, from 0; -1 is the last. Distances of several pairs are averaged."
    )
    anneal: Shape = _setting(
        "linear", "Shape of the change during the run, for temperature, weights and shares that have an end."
    )
    temperature_end: Temperature | None = _setting(None, "Temperature of the last step. [default: --temperature]")
    ce_weight_end: Weight | None = _setting(None, "Cross-entropy weight of the last step. [default: --ce-weight]")
    kd_weight_end: Weight | None = _setting(None, "Weight of the divergence in the last step. [default: --kd-weight]")
    feature_weight_end: Weight | None = _setting(
        None, "Weight of the hidden states in the last step. [default: --feature-weight]"
    )
    on_policy_end: Share | None = _setting(None, "Share of on-policy batches in the last step. [default: --on-policy]")
    anneal_warmup: CountOrZero = _setting(
        0, "Number of steps over which weights with an end rise from 0 to their start value."
    )


class Optimizer(_Group):
    """The optimizer steps."""

    name: OptimizerName = _setting("adamw", "Optimizer: adamw, adafactor, or MODULE:CLASS.", flat="optimizer")
    options: JSONObject | None = _setting(
        None,
        "Arguments of --optimizer, as a JSON object, such as betas, weight_decay or fused.",
        flat="optimizer_options",
    )
    lr: LearningRate = _setting(3e-3, "Peak learning rate.")
    layer_decay: PositiveShare = _setting(
        1.0, "Multiply the learning rate by X for each layer between a weight and the output layer."
    )
    clip: GradientNorm | None = _setting(None, "Scale the gradient of a step down to the norm X if its norm is larger.")
    accumulate: Count = _setting(1, "Number of batches per optimizer step; the gradient is as of one large batch.")


class Schedule(_Group):
    """The length of the run, and the schedule of the learning rate."""

    epochs: Count = _setting(3, "Number of epochs.")
    max_steps: Count | None = _setting(
        None,
        "End the run after N steps and save model and checkpoint; the learning-rate schedule still spans the full run.",
    )
    warmup: Warmup = _setting(
        50,
        "Number of steps over which the learning rate rises to --lr, or a share of the planned steps, such as 0.03.",
    )
    shape: RateShape = _setting(
        "cosine",
        "Schedule of the learning rate after the warmup; wsd is constant at first, and falls linearly at the end.",
        flat="schedule",
    )
    lr_end: Share = _setting(0.1, "Learning rate of the last step, as a fraction of --lr.")
    lr_decay: Count | None = _setting(
        None, "Number of steps over which --schedule wsd falls. [default: a fifth of the run]"
    )


class Checkpoints(_Group):
    """Checkpoints, and how a run resumes from them."""

    save_every: CountOrZero = _setting(
        5000,
        "Save a checkpoint every N steps and after the last step; 0 saves only the best evaluated steps.",
        alias="APR_DISTILL_CHECKPOINT_EVERY",
    )
    keep: CountOrZero = _setting(3, "Keep the last N checkpoints, and the best one; 0 keeps all.")
    resume: Location | None = _setting(
        None, "Resume from this checkpoint, or from latest or best in --out, with the same text, models and settings."
    )
    rewind: Switch = _setting(
        False, "Move aside the checkpoints in --out that are later than the step where the run resumes."
    )


class Evaluation(_Group):
    """Evaluation on held-back data, and the choice of the best step."""

    data: Location | None = _setting(
        None,
        "Evaluate Hugging Face models on this file of chats. [default: the last tenth of --data is held back]",
        flat="eval_data",
    )
    rows: CountOrZero = _setting(
        256,
        "Evaluate Hugging Face models on at most N held-back conversations, evenly spaced; 0 takes all.",
        flat="eval_rows",
    )
    every: CountOrZero = _setting(
        0, "Evaluate on held-back text every N steps; 0 evaluates only after the run.", flat="eval_every"
    )
    accept_depth: Depth = _setting(
        0, "Log how many of N drafted tokens the teacher accepts, as eval/accept_length; 0 does not measure it."
    )
    best_metric: Text = _setting("eval/hard_loss", "Metric of --eval-every whose best step is saved and kept.")
    best_mode: Mode = _setting("min", "Whether a smaller or a larger value of --best-metric is better.")
    best_min_delta: Weight = _setting(0.0, "Smallest improvement of --best-metric that makes a step the best.")


class Run(_Group):
    """Files, custom parts, devices, processes, and logs."""

    out: Location = _setting(Path("distilled"), "Directory for model.safetensors, config.json and manifest.json.")
    force: Switch = _setting(False, "Overwrite existing files in --out and --trace.")
    trace: Location | None = _setting(
        None, "Write the begin and end of run and epochs, evaluations and steps to this file, as JSON lines."
    )
    callbacks: Location | None = _setting(
        None, "Call the callbacks in this TOML file, which has their import paths and JSON arguments."
    )
    parts: Import | None = _setting(
        None,
        "Custom models, data or export: MODULE:CLASS, a subclass of Distillation, or of HuggingFace with --student.",
    )
    arguments: JSONObject | None = _setting(None, "Arguments of the class that --parts names, as a JSON object.")
    trust_remote_code: Switch = _setting(
        False, "Execute the Python code that the directories or repositories of --student and --teacher contain."
    )
    attn_implementation: Text | None = _setting(
        None, "Attention of Hugging Face models: sdpa, eager, flash_attention_2, ... [default: chosen by transformers]"
    )
    compile: Switch = _setting(False, "Compile the layers of Hugging Face models by torch.compile.")
    seed: CountOrZero = _setting(0, "Seed of the initial weights and the data order.")
    device: Device = _setting("auto", "Device to compute on; auto selects cuda if it is available.")
    dtype: Dtype = _setting("float32", "Data type; bfloat16 keeps float32 weights and uses autocast.")
    threads: Count | None = _setting(None, "Number of CPU threads of a process. [default: OMP_NUM_THREADS, or 1]")
    strategy: Strategy = _setting(
        "ddp", "With several processes: each has a copy of the student (ddp), or a shard of it (fsdp2)."
    )
    rank_timeout: Count = _setting(600, "Longest time in seconds that a process waits for the other processes.")
    hang_after: Seconds = _setting(
        3600.0, "Print every thread's stack and exit with code 1 after S seconds without a step; 0 disables this."
    )
    log_every: CountOrZero = _setting(10, "Log every N steps; 0 logs epochs only.", alias="APR_DISTILL_LOG_EVERY")
    log_to: Loggers | None = _setting(
        None, "Send logged metrics and settings to these trackers, separated by commas: tensorboard, wandb, mlflow."
    )
    smoke: Count | None = _setting(
        None, "Run N steps, report whether a full run looks healthy, save nothing.", alias="APR_DISTILL_MAX_STEPS"
    )
    project_to_steps: Count = _setting(
        50000, "Length in steps of the full run whose time --smoke projects.", alias="APR_DISTILL_PROJECT_TO_STEPS"
    )


class Settings(BaseModel):
    """The settings of a distillation, in groups; immutable.

    The constructor takes groups, mappings such as `objective={"temperature": 2}`, and settings by their flat or dotted
    names, such as `temperature=2`. `data`, `student`, `teacher` and `schedule` are names of groups and of settings: a
    text or a path is the value of the setting. The constructor reads neither environment nor files.

    Raises:
        SettingError: If a value is outside its domain, a setting is unknown, or settings exclude each other. The text
            names the setting, its value and the allowed values.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: Data = Data()
    student: Student = Student()
    teacher: Teacher = Teacher()
    objective: Objective = Objective()
    optimizer: Optimizer = Optimizer()
    schedule: Schedule = Schedule()
    checkpoints: Checkpoints = Checkpoints()
    evaluation: Evaluation = Evaluation()
    run: Run = Run()

    @property
    def trains_teacher(self) -> bool:
        """Whether the teacher is trained by this run, or was trained by an earlier run and cached."""
        return not _has_teacher(self) and (self.teacher.steps is not None or self.data.path is not None)

    def __init__(self, **values: object) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise refusal(error, {DOTTED[name]: field for name, field in FIELDS.items()}, (*FIELDS, *GROUPS)) from None

    if not TYPE_CHECKING:  # a type checker refuses flat names

        def __getattr__(self, name: str) -> object:
            if name not in DOTTED:
                return super().__getattr__(name)
            message = f"settings.{name} is deprecated; read settings.{DOTTED[name]}"
            warnings.warn(message, DeprecationWarning, stacklevel=2)
            return self.flat()[name]

    def flat(self, *, chosen: bool = False) -> dict[str, Any]:
        """Return the values by flat names. chosen: return only the values that were passed to the constructor."""
        values: dict[str, Any] = {}
        for name, dotted in DOTTED.items():
            group_name, leaf = dotted.split(".")
            group: _Group = getattr(self, group_name)
            if not chosen or leaf in group.model_fields_set:
                values[name] = getattr(group, leaf)
        return values

    def json_values(self) -> dict[str, object]:
        """Return the values by flat names as JSON values; paths become text by `path_in_json`."""
        return {name: path_in_json(value) if isinstance(value, Path) else value for name, value in self.flat().items()}

    def replace(self, **changes: object) -> Settings:
        """Return new settings with `changes`; names and errors are the same as in the constructor."""
        return Settings(**self.flat(chosen=True) | by_flat_name(changes))

    def model_copy(self, *, update: Mapping[str, object] | None = None, deep: bool = False) -> Settings:
        """Return new settings with `update`, as `replace` does. Settings are immutable, so `deep` has no effect."""
        return self.replace(**update or {})

    @model_validator(mode="wrap")
    @classmethod
    def _check_together(cls, values: object, validate: ModelWrapValidatorHandler[Settings]) -> Settings:
        if not isinstance(values, Mapping):
            return validate(values)
        # 1. Sort settings into their groups. Unknown names stay at the top level, where pydantic refuses them.
        named = by_flat_name(values)
        nested: dict[str, Any] = {}
        for name, value in named.items():
            group, _, leaf = DOTTED.get(name, name).rpartition(".")
            if group in GROUPS:
                nested.setdefault(group, {})[leaf] = value
            else:
                nested[name] = value
        settings = validate(nested)
        # 2. Refuse settings that exclude each other.
        smoke = settings.run.smoke
        excluded_by_smoke: tuple[tuple[str, object, str], ...] = (
            ("max_steps", settings.schedule.max_steps, "a smoke run has its own number of steps and saves nothing"),
            ("resume", settings.checkpoints.resume, "a smoke run starts over and saves nothing"),
            ("rewind", settings.checkpoints.rewind or None, "a smoke run changes no checkpoint"),
        )
        for name, chosen, reason in excluded_by_smoke:
            if smoke is not None and chosen is not None:
                shown = "true" if chosen is True else chosen
                raise SettingError(
                    f"conflicting settings: {named['smoke'].origin} is {smoke} and {named[name].origin} is {shown}; "
                    f"give one of them: {reason}"
                )
        loss = settings.objective
        if not (loss.ce_weight or loss.kd_weight or loss.ce_weight_end or loss.kd_weight_end):
            raise SettingError("conflicting settings: 'ce_weight' and 'kd_weight' are both 0; expected one above 0")
        return settings


GROUPS: dict[str, type[_Group]] = {name: type(field.default) for name, field in Settings.model_fields.items()}
"""The groups by their names."""
DOTTED: dict[str, str] = {
    field.serialization_alias or leaf: f"{name}.{leaf}"
    for name, group in GROUPS.items()
    for leaf, field in group.model_fields.items()
}
"""The dotted name of each setting, such as `objective.temperature`, by its flat name, such as `temperature`."""
FIELDS: dict[str, FieldInfo] = {
    field.serialization_alias or leaf: field for group in GROUPS.values() for leaf, field in group.model_fields.items()
}
"""The declaration of each setting, by its flat name."""
_FLAT = {dotted: name for name, dotted in DOTTED.items()}


def by_flat_name(values: Mapping[str, object]) -> dict[str, SourcedValue]:
    """Return values, each with its source, by the flat names of their settings; unknown names are unchanged.

    Args:
        values: Values by flat or dotted names, and groups or mappings by the name of their group.

    Raises:
        SettingError: A setting is named twice, or the value of a group is not a mapping.
    """
    # 1. Replace groups by their settings, with dotted names.
    members: dict[str, object] = {}
    for name, value in values.items():
        if name in GROUPS and isinstance(value, _Group):
            members |= {f"{name}.{leaf}": getattr(value, leaf) for leaf in value.model_fields_set}
        elif name in GROUPS and isinstance(value, Mapping):
            members |= {f"{name}.{leaf}": member for leaf, member in value.items()}
        elif name in GROUPS and name not in DOTTED:
            sourced = _with_source(name, value)
            message = f"invalid value {short_repr(sourced.value)} for {sourced.origin}"
            raise SettingError(f"{message}: expected a table of settings")
        else:
            members[name] = value
    # 2. Replace dotted names by flat ones.
    named: dict[str, SourcedValue] = {}
    for name, value in members.items():
        sourced = _with_source(name, value)
        flat = _FLAT.get(name, name)
        if flat in named:
            raise SettingError(
                f"conflicting settings: {named[flat].origin} and {sourced.origin} are the same setting; "
                "give one of them"
            )
        named[flat] = sourced
    return named


def _with_source(name: str, value: object) -> SourcedValue:
    """Return a value with its source. For a value that was passed to a constructor, the source is its name."""
    return value if isinstance(value, SourcedValue) else SourcedValue(value, repr(name), is_text=False)


def schema() -> str:
    """Return the JSON Schema of a settings file, as text. Keys of a file are flat names, and groups with tables."""
    content = Settings.model_json_schema(by_alias=False)
    properties = content["properties"]
    # Add the flat names. A name such as `data` is both a group and a setting.
    for name, dotted in DOTTED.items():
        group, leaf = dotted.split(".")
        setting = content["$defs"][GROUPS[group].__name__]["properties"][leaf]
        properties[name] = {"anyOf": [properties[name], setting]} if name in properties else setting
    return json.dumps(content, indent=2) + "\n"


def _has_weight_end(settings: Settings) -> bool:
    """Return whether any loss weight has an end."""
    ends = (settings.objective.ce_weight_end, settings.objective.kd_weight_end, settings.objective.feature_weight_end)
    return any(end is not None for end in ends)


def _has_teacher(settings: Settings) -> bool:
    """Return whether a teacher, its stored outputs or its server is given."""
    return any((settings.teacher.model, settings.teacher.outputs, settings.teacher.url))


# Rules of `find_unused`: names of settings, the situation in which they have no effect, and the condition under which
# they have one. A setting in several rules has an effect only if the conditions of all these rules hold.
_RULES: tuple[tuple[tuple[str, ...], str, Callable[[Settings], bool]], ...] = (
    (
        ("beta",),
        f"without divergence {' or '.join(WITH_BETA)}",
        lambda settings: settings.objective.divergence in WITH_BETA,
    ),
    (("anneal_warmup",), "without the end of a weight, such as kd_weight_end", _has_weight_end),
    (
        ("anneal",),
        "without an end, such as temperature_end",
        lambda settings: (
            settings.objective.temperature_end is not None
            or settings.objective.on_policy_end is not None
            or _has_weight_end(settings)
        ),
    ),
    (
        ("feature_distance", "feature_layers"),
        "without feature_weight",
        lambda settings: bool(settings.objective.feature_weight or settings.objective.feature_weight_end),
    ),
    (
        ("answer_tokens", "answer_temperature", "answer_top_p"),
        "without on_policy",
        lambda settings: bool(settings.objective.on_policy or settings.objective.on_policy_end),
    ),
    (("served_model", "teacher_top_k"), "without teacher_url", lambda settings: settings.teacher.url is not None),
    (
        ("divergence", "beta", "accept_depth"),
        "with cross_tokenizer",
        lambda settings: not (settings.teacher.cross_tokenizer and settings.student.model is not None),
    ),
    (("lr_decay",), "without schedule wsd", lambda settings: settings.schedule.shape == "wsd"),
    (("lr_end",), "with schedule constant", lambda settings: settings.schedule.shape != "constant"),
    (
        ("group_by_length",),
        "without padded rows of documents",
        lambda settings: (
            settings.data.documents == "pad" or (settings.data.documents is None and settings.student.model is not None)
        ),
    ),
    (("group_by_length",), "with mix", lambda settings: settings.data.mix is None),
    (("separator",), "without documents", lambda settings: settings.data.documents is not None),
    (
        ("best_metric", "best_mode", "best_min_delta"),
        "without eval_every",
        lambda settings: settings.evaluation.every > 0,
    ),
    (("arguments",), "without parts", lambda settings: settings.run.parts is not None),
    (
        (
            *("checkpoint_activations", "data_cache", "data_cache_gib", "eval_data", "eval_rows", "lora"),
            *("teacher_device_map", "weights", "turns", "chat_template", "template_options", "skip_invalid_rows"),
            *("mix", "cross_tokenizer", "data_workers", "on_policy", "on_policy_end", "teacher_url"),
            *("revision", "teacher_revision", "trust_remote_code", "attn_implementation", "quantization", "compile"),
        ),
        "without student",
        lambda settings: settings.student.model is not None,
    ),
    (("teacher_revision", "quantization"), "without teacher", lambda settings: settings.teacher.model is not None),
    (("log_to",), "with smoke", lambda settings: settings.run.smoke is None),
    (("lora_options", "lora_merge"), "without lora", lambda settings: settings.student.lora is not None),
    (("layers", "width", "separator", "data_share"), "with student", lambda settings: settings.student.model is None),
    (
        ("teacher_steps", "teacher_layers", "teacher_width", "teacher_cache"),
        "with teacher",
        lambda settings: not _has_teacher(settings),
    ),
    (
        ("teacher_layers", "teacher_width", "teacher_cache"),
        "without teacher_steps or data",
        lambda settings: _has_teacher(settings) or settings.trains_teacher,
    ),
)


def find_unused(settings: Settings) -> list[str]:
    """Return a line for each setting that differs from its default but has no effect, and for each reason."""
    values = settings.flat()
    return [
        f"settings: {name} has no effect {situation}"
        for names, situation, has_effect in _RULES
        for name in names
        if values[name] != FIELDS[name].default and not has_effect(settings)
    ]
