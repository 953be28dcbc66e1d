"""The command `evaluate`: measure saved models and checkpoints on the same rows, against the same teacher.

`evaluate_saved` loads one model after the other, and `Evaluator` computes the sums of the model. Custom parts are the
class that the setting `parts` names. If this class overrides `evaluate`, its method computes the sums.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from reference_trainer.callbacks.progress import SilentLines
from reference_trainer.config.kinds import path_in_json
from reference_trainer.config.settings import FIELDS, Settings
from reference_trainer.distillation.metrics import accepted_name, derive_metrics
from reference_trainer.distillation.objective import Weights
from reference_trainer.distillation.protocols import Batch, Teacher, TopKTeacher
from reference_trainer.distillation.providers import ModuleStudent, ModuleTeacher
from reference_trainer.distillation.step import MetricSum
from reference_trainer.distillation.vocabulary import share_vocabulary
from reference_trainer.errors import DataError, ModelFileError, SettingError, TrainerError, first_line, similar_path
from reference_trainer.models.decoder import Decoder
from reference_trainer.models.placement import computing_in, cpu_threads, device_name, usable_device
from reference_trainer.pipeline.checkpoint_list import checkpoint_student
from reference_trainer.pipeline.checkpointing import hint_at_latest
from reference_trainer.pipeline.custom_class import checkpoint_module, create_run
from reference_trainer.pipeline.distill import Distillation
from reference_trainer.pipeline.evaluations import EvalConfig, check_sums, eval_config, evaluation_mode
from reference_trainer.pipeline.parts import Run
from reference_trainer.pipeline.teachers import stored_teacher
from reference_trainer.plan.schedule import Schedule
from reference_trainer.ranks.parallel import ONE_PROCESS
from reference_trainer.storage.checkpoints import rank_file
from reference_trainer.storage.export import CONFIG, MANIFEST, MODEL_TYPE, WEIGHTS, versions
from reference_trainer.storage.produce_once import produce_once
from reference_trainer.storage.teacher_outputs import SavedOutputs
from reference_trainer.storage.whole_weights import read_weights
from reference_trainer.training.evaluation import evaluate

AT_ONE = Weights(temperature=1.0, ce_weight=1.0, kd_weight=1.0)
"""The arguments of the loss in evaluations: temperature 1, so that results of runs can be compared.

With stored top-k outputs of a teacher, their temperature replaces it."""
WITHOUT_TEACHER = ("hard_loss", "token_accuracy")
"""The names of the sums that are computed without a teacher."""
WITH_TEACHER = ("hard_loss", "token_accuracy", "kl_at_1", "agreement", "teacher_loss")
"""The names of the sums that are computed with all logits of a teacher."""


def metric_names(settings: Settings, *, has_teacher: bool, top_k: int | None = None) -> tuple[str, ...]:
    """Return the names of the sums of a built-in evaluation, in order. A depth that no draft reaches has no sum.

    Args:
        settings: The settings of the evaluation.
        has_teacher: Whether there is a teacher, or stored outputs of a teacher.
        top_k: The number of tokens whose logits were stored per position; None for all tokens.
    """
    if not has_teacher:
        return WITHOUT_TEACHER
    if top_k is not None:
        return (*WITHOUT_TEACHER, "soft_loss")
    return (*WITH_TEACHER, *(accepted_name(depth) for depth in range(1, settings.evaluation.accept_depth + 1)))


class ScoredModel:
    """A model that caches the logits of the last batch, so that a model that is compared with itself runs once.

    Args:
        path: The directory of a saved model; None for a teacher that custom parts create.
        module: The model.
        digest: The SHA-256 of the model, by `saved_digest` or `teacher_digest`.
        run: The run whose data the model is measured on.

    Raises:
        DataError: A token of the run's data is not in the model's vocabulary.
    """

    def __init__(self, path: Path | None, module: nn.Module, digest: str, run: Run) -> None:
        self.path, self.digest, self.vocab_size = path, digest, _vocab_size_of(module, run)
        largest = run.recipe.data.largest_token
        if largest >= self.vocab_size:
            data = "text" if run.unit == "byte" else "data"
            raise DataError(
                f"the {data} has {run.unit} {largest}, and {path} has {self.vocab_size} tokens; expected more tokens"
            )
        self.module = module.to(run.device)
        self._model = ModuleTeacher(computing_in(run.settings.run.dtype, self.module), self.vocab_size)
        self._last: tuple[Batch, Tensor] | None = None

    def logits(self, batch: Batch) -> Tensor:
        """Return the logits of a batch. If the last call had the same batch object, return the cached logits."""
        if self._last is None or self._last[0] is not batch:
            self._last = batch, self._model.logits(batch)
        return self._last[1]


class Evaluator:
    """Measure models on the same rows, against the same teacher.

    Args:
        run: The run that loads models and data, created from the same settings and entered as a context.
        settings: The settings of the evaluation.
        whole: Whether to measure on all rows of the data, and not only on held-back rows.
        outputs: Stored outputs that are read instead of running a teacher.

    Raises:
        SettingError: The stored outputs belong to other rows, are combined with `whole` or a custom `evaluate`, or
            custom parts have batches and no `evaluate`.
        TrainerError: A part of the run raises it.
    """

    def __init__(self, run: Run, settings: Settings, *, whole: bool, outputs: SavedOutputs | None = None) -> None:
        self.run, self.device, self.outputs = run, usable_device(settings.run.device), outputs
        run.device, run.parallel = self.device, ONE_PROCESS
        # In a schedule of one step, annealed temperatures and weights have their last value.
        run.schedule = Schedule(epochs=1, steps_per_epoch=1)
        run.make_held_back(whole=whole)
        if not hasattr(run, "held_back") and not self.is_custom:
            name = f"{type(run).__name__} has batches of its own"
            raise SettingError(f"{name}: override evaluate too, or set held_back")
        if outputs is None:
            self.teacher = self._load_teacher()
            return
        if whole or self.is_custom or not isinstance(run, Distillation):
            reason = "for training rows and held-back rows, not for --whole" if whole else "for built-in parts only"
            raise SettingError(f"the outputs in {outputs.path} are {reason}; give --teacher instead")
        # Create the batches too: the numbers of held-back rows begin after the rows to train on.
        run.batches = run.make_batches()
        run.read_outputs(outputs)
        self.teacher = None

    @property
    def is_custom(self) -> bool:
        """Return whether custom parts override `evaluate`."""
        return "evaluate" in self.run.replaced

    def student(self, path: Path) -> ScoredModel:
        """Load a saved model. Raise the errors of `load_saved` and `ScoredModel`."""
        module = load_saved(path, self.run)
        return ScoredModel(path, module, self.run.saved_digest(path, module), self.run)

    def sums(self, student: ScoredModel) -> dict[str, MetricSum]:
        """Return the sums of a model: at temperature 1, at the temperature of top-k outputs, or of custom parts.

        Errors name the model.
        """
        try:
            return self._custom_sums(student) if self.is_custom else self._sums(student)
        except TrainerError as error:
            error.add_note(f"in the evaluation of {student.path}")
            raise

    def _sums(self, student: ScoredModel) -> dict[str, MetricSum]:
        settings, rows, outputs = self.run.settings, self.run.held_back, self.outputs
        has_teacher = self.teacher is not None or outputs is not None
        # Without a teacher, compare the student with itself; the sums that need a teacher are left out below.
        frozen: Teacher | TopKTeacher = (self.teacher or student) if outputs is None else stored_teacher(outputs)
        learner: Any = student
        if has_teacher and settings.teacher.share_vocabulary is not None:
            frozen, learner = share_vocabulary(frozen, learner, settings.teacher.share_vocabulary)
        top_k = None if outputs is None else outputs.manifest.top_k
        weights = AT_ONE if top_k is None else replace(AT_ONE, temperature=settings.objective.temperature)
        sums = evaluate(frozen, learner, rows, weights, accept_depth=settings.evaluation.accept_depth)
        names = metric_names(settings, has_teacher=has_teacher, top_k=top_k)
        return {name: sums[name] for name in names if name in sums}

    def _custom_sums(self, student: ScoredModel) -> dict[str, MetricSum]:
        run, teacher = self.run, self.teacher or student
        wrap = partial(computing_in, run.settings.run.dtype)
        run.student, run.teacher = student.module, teacher.module
        run.learner = ModuleStudent(wrap(student.module), student.vocab_size)
        run.frozen = ModuleTeacher(wrap(teacher.module), teacher.vocab_size)
        with evaluation_mode([run.student, run.teacher], self.device):
            sums = run.evaluate()
        check_sums(sums, type(run).__name__)
        return sums

    def _load_teacher(self) -> ScoredModel | None:
        """Return the teacher that custom parts create, or the saved teacher of the settings; None without a teacher."""
        run, settings = self.run, self.run.settings
        if settings.run.parts is not None and "make_teacher" in run.replaced:
            run.teacher = run.make_teacher()
            return ScoredModel(None, run.teacher, run.teacher_digest(), run)
        return None if settings.teacher.model is None else self.student(settings.teacher.model)


def _vocab_size_of(module: nn.Module, run: Run) -> int:
    """Return the vocabulary size of a model; if the model has no such attribute, the vocabulary size of the run."""
    if isinstance(module, Decoder):
        return module.config.vocab_size
    return int(getattr(module, "vocab_size", run.vocab_size))


def load_saved(path: Path, run: Run) -> nn.Module:
    """Load the model in a directory, or the student of a checkpoint, on the CPU, in the data type of the files.

    Files are compared with their digests if digests were saved.

    Args:
        path: The directory.
        run: The run whose parts load the model.

    Raises:
        ModelFileError: The model is missing or damaged, or does not fit the parts.
        CheckpointError: The checkpoint is missing or damaged, or does not fit the parts.
        SettingError: The custom parts cannot load a model.
    """
    is_custom = run.settings.run.parts is not None or run.settings.student.model is not None
    # A directory is a checkpoint if it has the tensors of rank 0; a model has other files.
    if os.path.isfile(path / rank_file(0)):  # noqa: PTH113  (Path.is_file raises for a name that is too long)
        saved = read_weights(path)
        return checkpoint_module(saved, run) if is_custom else checkpoint_student(saved)
    if is_custom:
        return _load_custom(path, run)
    if os.path.isfile(path / WEIGHTS):  # noqa: PTH113  (Path.is_file raises for a name that is too long)
        return run.saved_model(path)
    if not os.path.isfile(path / MANIFEST):  # noqa: PTH113  (Path.is_file raises for a name that is too long)
        raise ModelFileError(
            f"{path} has no {MANIFEST}{similar_path(path)}; expected a model or a checkpoint{hint_at_latest(path)}"
        )
    return checkpoint_student(read_weights(path))  # raises an error that names the missing file


def _load_custom(path: Path, run: Run) -> nn.Module:
    """Load a model by custom parts. Every error contains the path and the result of `hint_at_latest`."""
    try:
        return run.saved_model(path)
    except TrainerError as error:
        if hint := hint_at_latest(path):
            error.add_note(hint.removeprefix("; "))
        raise
    except Exception as error:  # raised by custom code or a library
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise ModelFileError(f"{type(run).__name__} cannot load {path}: {reason}{hint_at_latest(path)}") from error


RUN_SETTINGS = ("length", "documents", "separator", "dtype", "share_vocabulary", "accept_depth")
"""Settings that the evaluation of a run takes from the run."""
HUGGING_FACE_SETTINGS = (
    *RUN_SETTINGS,
    *"student data eval_data eval_rows lora lora_options turns chat_template template_options".split(),
)
"""Settings that the evaluation of a run with a Hugging Face student takes from the run."""
EXCLUDED_CUSTOM_SETTINGS = frozenset(
    "out force trace callbacks smoke max_steps resume init_from rewind".split()
    + "device threads batch_size teacher_outputs".split()
)
"""Settings that the evaluation of a run with custom parts does not take from that run."""
SUMS = "sums.json"
"""Name of the file with the sums in an entry of the cache."""
NUMBER_WIDTH = 12
"""Width of a column of the table: the longest number of six digits, such as -1.23457e-05."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatedData:
    """The data of an evaluation.

    Attributes:
        name: The path, or a description.
        digest: SHA-256; None if custom parts record no digest.
        unit: The unit of the data, such as "byte".
    """

    name: str
    digest: str | None
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedModel:
    """A model, a checkpoint, or a teacher whose stored outputs alone are read.

    Attributes:
        path: The directory, of the model or of the stored outputs; None for a teacher that custom parts create.
        digest: SHA-256 of the weights.
    """

    path: Path | None
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatedModel(SavedModel):
    """Sums and counts of one model over the scored tokens of the data."""

    sums: dict[str, MetricSum]

    @property
    def metrics(self) -> dict[str, float]:
        """Return the means and the perplexities; losses are in nats per token."""
        return derive_metrics(self.sums)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationResult:
    """The results of models on the same data, with everything that the numbers depend on.

    Attributes:
        paths: The directories of all models to evaluate.
        text: The data.
        whole: Whether all rows are evaluated, and not only held-back rows.
        settings: The settings of the evaluation.
        device: The device that computed the results.
        teacher: The teacher, also if only its stored outputs were read; None without a teacher.
        models: The results, one for each evaluated model.
        config: The identity of the evaluation; results with equal identities can be compared.
        outputs: The stored outputs of the teacher; None if it was run.
    """

    paths: Sequence[Path]
    text: EvaluatedData
    whole: bool
    settings: Settings
    device: torch.device
    teacher: SavedModel | None
    models: Sequence[EvaluatedModel]
    config: EvalConfig
    outputs: SavedOutputs | None = None


def settings_of_run(paths: Sequence[Path], chosen: Mapping[str, object]) -> Settings:
    """Return the settings of an evaluation: `chosen`, completed by settings of the run of a model.

    All models are measured with the settings of the first model whose run recorded its settings. From this run, take
    `RUN_SETTINGS`; with a Hugging Face student, `HUGGING_FACE_SETTINGS`; with custom parts, all settings except
    `EXCLUDED_CUSTOM_SETTINGS`. A model of transformers without recorded settings counts as a run with the setting
    `student`. Settings that do not fit a chosen setting are left out.

    Args:
        paths: The directories of the models.
        chosen: The settings that the user chose, by flat names.

    Raises:
        SettingError: A setting is invalid.
    """
    recorded = next(filter(None, map(_recorded_settings, paths)), {})
    # Drop recorded settings that do not fit a chosen setting: other parts have other students, the recorded evaluation
    # data belongs to the recorded data, and stored outputs replace the teacher.
    dropped = set[str]()
    if "parts" in chosen or "student" in chosen:
        dropped |= {"parts", "student"}
    if "data" in chosen:
        dropped.add("eval_data")
    if "teacher_outputs" in chosen:
        dropped.add("teacher")
    kept: dict[str, object] = {name: value for name, value in recorded.items() if name not in dropped}
    return Settings(**{**kept, **chosen})


def _recorded_settings(path: Path) -> dict[str, object]:
    """Return the settings in a model's manifest on which an evaluation depends.

    If there are none, or the manifest cannot be read or is invalid, return the result of `_student_of_transformers`.
    """
    try:
        # The manifest of a saved model has `settings`; a checkpoint has `conditions` and, in its state, "own".
        content = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        recorded = {**(content.get("settings") or content.get("conditions") or {})}
        recorded |= content.get("state", {}).get("own", {})
        is_model = "sha256" in content and "state" not in content and recorded.get("lora") is None
        if recorded.get("student") is not None and is_model:
            # The directory of the model, which may have been moved, has the tokenizer with the run's chat template.
            recorded |= {"student": str(path), "chat_template": None}
        chosen = {name: recorded[name] for name in _setting_names(recorded) if recorded.get(name) is not None}
        Settings(**chosen)  # raises if a setting is invalid
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):  # loading the model raises its own error
        chosen = {}
    return chosen or _student_of_transformers(path)


def _setting_names(recorded: Mapping[str, object]) -> Sequence[str]:
    """Return the names of the settings on which the evaluation of a run with the `recorded` settings depends."""
    if recorded.get("parts") is not None:
        return [name for name in FIELDS if name not in EXCLUDED_CUSTOM_SETTINGS]
    return RUN_SETTINGS if recorded.get("student") is None else HUGGING_FACE_SETTINGS


def _student_of_transformers(path: Path) -> dict[str, object]:
    """Return the setting `student` for a directory with a model of transformers; {} for other models."""
    try:
        model_type = json.loads((path / CONFIG).read_text(encoding="utf-8")).get("model_type", MODEL_TYPE)
    except (OSError, ValueError, AttributeError, RecursionError):
        return {}
    return {} if model_type == MODEL_TYPE else {"student": str(path)}


def evaluate_saved(
    paths: Sequence[Path],
    settings: Settings,
    *,
    whole: bool = False,
    cache: Path | None = None,
    on_result: Callable[[EvaluationResult], object] = lambda evaluation: None,
    on_error: Callable[[TrainerError], object] | None = None,
    environment: Mapping[str, str] = os.environ,
) -> EvaluationResult:
    """Measure saved models on the same rows, and return their sums, in float64 and at temperature 1.

    - Without a teacher, only the loss and the accuracy on the text are measured.
    - With `teacher_outputs`, no teacher is run. With top-k outputs, the only divergence is `soft_loss`, at the
      temperature of the outputs.
    - Custom parts that override `evaluate` compute the sums, at any temperature.
    - The teacher and one model at a time are in memory.

    Args:
        paths: The directories of the models.
        settings: `RUN_SETTINGS` have an effect, as well as data, batch_size, device, threads, teacher, and the parts
            that load models and data.
        whole: Whether to measure on all rows, and not only on the rows that a run on this data holds back.
        cache: A directory in which sums are stored and looked up; None for no cache. Sums that custom parts compute are
            not stored, because the cache could not detect a change of their code.
        on_result: Called after each model, with the results so far.
        on_error: Called with the error of a model, which is then left out; None raises the error.
        environment: The variables of the process, for the number of threads.

    Raises:
        DataError: The data cannot be read, or has a token that is not in a model's vocabulary.
        VocabularyError: The vocabulary sizes of the teacher and a model do not fit.
        LogitsError: A logit is not finite.
        SettingError: Both `teacher` and `teacher_outputs` are set, or as for `Evaluator`.
        TrainerError: `load_saved` or a part of the run raises it. Errors about a single model name the model.
    """
    outputs = None if settings.teacher.outputs is None else SavedOutputs(settings.teacher.outputs)
    if outputs is not None:
        if settings.teacher.model is not None:
            raise SettingError("conflicting settings: give one of 'teacher' and 'teacher_outputs'")
        settings = _with_outputs(settings, outputs)
    run_class = Run if outputs is None else Distillation
    threads = cpu_threads(settings.run.threads, environment)
    with threads, create_run(settings, run_class, lines=SilentLines()) as run:
        evaluator = Evaluator(run, settings, whole=whole, outputs=outputs)
        models: list[EvaluatedModel] = []
        teacher = None
        if outputs is not None:
            teacher = SavedModel(path=outputs.path, digest=outputs.manifest.teacher_sha256)
        elif evaluator.teacher is not None:
            teacher = SavedModel(path=evaluator.teacher.path, digest=evaluator.teacher.digest)
        top_k = None if outputs is None else outputs.manifest.top_k
        evaluation = EvaluationResult(
            paths=paths,
            text=_source(run),
            whole=whole,
            settings=settings,
            device=evaluator.device,
            teacher=teacher,
            models=models,
            config=eval_config(run, whole=whole, teacher=None if teacher is None else teacher.digest, top_k=top_k),
            outputs=outputs,
        )
        for path in paths:
            try:
                models.append(_evaluate_model(path, evaluator, evaluation.config, cache))
            except TrainerError as error:
                if on_error is None:
                    raise
                on_error(error)
            else:
                on_result(evaluation)
    return evaluation


def _with_outputs(settings: Settings, outputs: SavedOutputs) -> Settings:
    """Return the settings with the data share and the temperature of the stored outputs, without hidden states."""
    manifest = outputs.manifest
    changes: dict[str, object] = {"data_share": manifest.identity.get("data_share"), "temperature_end": None}
    if manifest.temperature is not None:
        changes["temperature"] = manifest.temperature
    return settings.replace(**changes, feature_weight=0.0, feature_weight_end=None)


def _source(run: Run) -> EvaluatedData:
    """Return a description of the data of a run."""
    data = run.settings.data.path
    packaged = "the packaged text" if run.unit == "byte" else f"the data of {run.settings.run.parts}"
    name = packaged if data is None else str(data)
    return EvaluatedData(name=name, digest=run.digests.get("data_sha256"), unit=run.unit)


def _evaluate_model(path: Path, evaluator: Evaluator, config: EvalConfig, cache: Path | None) -> EvaluatedModel:
    """Return the sums of a model, from the cache if they are stored there."""
    student = evaluator.student(path)
    if cache is None or config.own is not None:
        return EvaluatedModel(path=path, digest=student.digest, sums=evaluator.sums(student))
    # The cache key includes device and versions, which are not in `config`, because they change the last bits.
    computed = {"device": device_name(evaluator.device), "versions": versions()}
    stored = {} if evaluator.outputs is None else {"outputs": evaluator.outputs.sha256}
    identity = {**asdict(config), "model": student.digest, **computed, **stored}
    entry = produce_once(cache, "evaluation", identity, lambda new: _write_sums(new / SUMS, evaluator.sums(student)))
    return EvaluatedModel(path=path, digest=student.digest, sums=_read_sums(entry / SUMS))


def _write_sums(path: Path, sums: Mapping[str, MetricSum]) -> None:
    path.write_text(json.dumps({name: asdict(total) for name, total in sums.items()}) + "\n", encoding="utf-8")


def _read_sums(path: Path) -> dict[str, MetricSum]:
    return {name: MetricSum(**total) for name, total in json.loads(path.read_text(encoding="utf-8")).items()}


def table(evaluation: EvaluationResult) -> list[str]:
    """Return a line with the conditions, a line with the names of the metrics, and a line for each model.

    The widths of the columns do not depend on the results, so the line of each new model can be printed alone.

    Args:
        evaluation: The results. The table shows "-" for a metric that a model does not have.
    """
    rows = [{"model": str(model.path)} | _texts(model) for model in evaluation.models]
    widths = {name: max(len(name), NUMBER_WIDTH) for name in ("model", *_columns(evaluation))}
    widths["model"] = max(len(str(path)) for path in (*evaluation.paths, "model"))
    head = {name: name for name in widths}
    lines = ["  ".join(f"{row.get(name, '-'):<{width}}" for name, width in widths.items()) for row in [head, *rows]]
    return [_conditions(evaluation), *(line.rstrip() for line in lines)]


def _columns(evaluation: EvaluationResult) -> Iterable[str]:
    """Return the names of the metrics: all possible names or, for custom parts, the names of the first model."""
    if evaluation.config.own is not None:
        return evaluation.models[0].metrics
    has_teacher, top_k = evaluation.teacher is not None, evaluation.config.top_k
    names = metric_names(evaluation.settings, has_teacher=has_teacher, top_k=top_k)
    return derive_metrics({name: MetricSum(0.0, 1) for name in names})


def _conditions(evaluation: EvaluationResult) -> str:
    """Return the line about data, rows and teacher."""
    settings, text, teacher = evaluation.settings, evaluation.text, evaluation.teacher
    against = "" if teacher is None else f", against {teacher.path or f'the teacher of {settings.run.parts}'}"
    if evaluation.config.top_k is not None:
        against += f" ({evaluation.config.top_k} tokens at temperature {settings.objective.temperature:g})"
    if evaluation.config.own is not None:
        return f"{text.name} ({evaluation.config.part}), by {settings.run.parts}{against}"
    count = evaluation.models[0].sums["hard_loss"].count
    rows = f"sequences of {settings.data.length}"
    if settings.data.documents is not None:
        kind = "padded" if settings.data.documents == "pad" else "packed"
        rows = f"{kind} documents of at most {settings.data.length}"
    computed = f", in {settings.run.dtype}" if settings.run.dtype == "bfloat16" else ""
    return f"{text.name} ({evaluation.config.part}): {count} {text.unit}s in {rows}{computed}{against}"


def _texts(evaluated: EvaluatedModel) -> dict[str, str]:
    """Return the metrics as text with six significant digits."""
    return {name: f"{value:.6g}" for name, value in evaluated.metrics.items()}


def report(evaluation: EvaluationResult) -> dict[str, object]:
    """Return the evaluation as JSON values."""
    text, teacher = evaluation.text, evaluation.teacher
    outputs = evaluation.outputs
    stored = {} if outputs is None else {"outputs_sha256": outputs.sha256, "temperature": outputs.manifest.temperature}
    teacher_entry = None
    if teacher is not None:
        teacher_entry = {"path": _json_path(teacher.path), "sha256": teacher.digest, **stored}
    return {
        "schema": "reference-trainer/evaluation/1",
        "text": {"name": text.name, "sha256": text.digest, "part": evaluation.config.part},
        "unit": text.unit,
        "evaluation": evaluation.config.in_json(),
        **{name: evaluation.settings.flat()[name] for name in RUN_SETTINGS},
        "teacher": teacher_entry,
        "device": device_name(evaluation.device),
        "versions": versions(),
        "models": [_entry(model) for model in evaluation.models],
    }


def _entry(evaluated: EvaluatedModel) -> dict[str, object]:
    return {
        "path": _json_path(evaluated.path),
        "sha256": evaluated.digest,
        "sums": {name: {"sum": total.sum, "count": total.count} for name, total in evaluated.sums.items()},
        "metrics": evaluated.metrics,
    }


def _json_path(path: Path | None) -> str | None:
    return None if path is None else path_in_json(path)
