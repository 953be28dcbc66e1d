"""The command `evaluate`: saved models and checkpoints on one text, each against the same teacher."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from reference_trainer.callbacks.lines import SilentLines
from reference_trainer.config.settings import Settings
from reference_trainer.distillation.metrics import derived
from reference_trainer.distillation.step import MetricSum
from reference_trainer.errors import TrainerError
from reference_trainer.models.placement import device_name
from reference_trainer.pipeline.bench import Evaluator, metric_names
from reference_trainer.pipeline.eval_config import EvalConfig, eval_config
from reference_trainer.pipeline.own import create_run
from reference_trainer.pipeline.parts import Run
from reference_trainer.storage.export import CONFIG, MANIFEST, MODEL_TYPE, versions
from reference_trainer.storage.files import path_in_json
from reference_trainer.storage.produce_once import produce_once

__all__ = ["Evaluated", "Evaluation", "SavedModel", "Source", "evaluate_saved", "report", "settings_of_run", "table"]

OF_A_RUN = ("length", "documents", "separator", "dtype", "share_vocabulary", "accept_depth")
"""Settings by which a run has evaluated its student."""
OF_HUGGING_FACE = (
    *OF_A_RUN,
    *"student data eval_data eval_rows lora lora_options turns chat_template template_options".split(),
)
NOT_OF_OWN = frozenset("out force trace callbacks smoke max_steps resume init_from rewind device batch_size".split())
"""Settings that an evaluation of own parts does not take from their run."""
SUMS = "sums.json"
NUMBER = 12  # characters of a number of six digits, at most


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The data of an evaluation. digest: SHA-256; None for own data without one. unit: what a token is."""

    name: str
    digest: str | None
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedModel:
    """A model or a checkpoint; path: None for a teacher that own parts make. digest: SHA-256 of its weights."""

    path: Path | None
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated(SavedModel):
    """Sums and counts of one model over the scored tokens of the data."""

    sums: dict[str, MetricSum]

    @property
    def metrics(self) -> dict[str, float]:
        """Return the means, in nats per token where they are losses, and the perplexities."""
        return derived(self.sums)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Models that were evaluated on one text, and what their numbers depend on. whole: not only the held-back part.

    paths: of all models that were asked for. config: by which these can be compared with others.
    """

    paths: Sequence[Path]
    text: Source
    whole: bool
    settings: Settings
    device: torch.device
    teacher: SavedModel | None
    models: Sequence[Evaluated]
    config: EvalConfig


def settings_of_run(paths: Sequence[Path], given: Mapping[str, Any]) -> Settings:
    """Return the `given` settings; others are those of the run of the first model with any.

    Of a run these are length, documents, separator, dtype and vocabulary, and of Hugging Face models also data and
    student; of own parts all that do not name files of the run. So all models are measured alike. Raise `SettingError`
    for invalid ones.
    """
    recorded = next(filter(None, map(_of_run, paths)), {})
    replaced = {"parts", "student"} if {"parts", "student"} & given.keys() else set()
    replaced |= {"eval_data"} if "data" in given else set()
    return Settings(**{**{name: value for name, value in recorded.items() if name not in replaced}, **given})


def _of_run(path: Path) -> dict[str, Any]:
    """Return the settings of a manifest by which a run evaluates; none without a manifest of a run."""
    try:
        content = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        kept = {**(content.get("settings") or content.get("conditions") or {})}
        kept |= content.get("state", {}).get("own", {})  # of a checkpoint
        whole = "sha256" in content and "state" not in content and kept.get("lora") is None
        if kept.get("student") is not None and whole:
            # The model has its tokenizer beside it, wherever it is now, with the chat template of the run.
            kept |= {"student": str(path), "chat_template": None}
        chosen = {name: kept[name] for name in _names(kept) if kept.get(name) is not None}
        Settings(**chosen)
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):  # it is reported when the model is loaded
        chosen = {}
    return chosen or _of_transformers(path)


def _names(kept: Mapping[str, Any]) -> Sequence[str]:
    if kept.get("parts") is not None:
        return [name for name in Settings.model_fields if name not in NOT_OF_OWN]
    return OF_A_RUN if kept.get("student") is None else OF_HUGGING_FACE


def _of_transformers(path: Path) -> dict[str, Any]:
    """Return the student that the configuration of a model of transformers makes of it; none for other models."""
    try:
        kind = json.loads((path / CONFIG).read_text(encoding="utf-8")).get("model_type", MODEL_TYPE)
    except (OSError, ValueError, AttributeError, RecursionError):
        return {}
    return {} if kind == MODEL_TYPE else {"student": str(path)}


def evaluate_saved(
    paths: Sequence[Path],
    settings: Settings,
    *,
    whole: bool = False,
    cache: Path | None = None,
    done: Callable[[Evaluation], object] = lambda evaluation: None,
    unfit: Callable[[TrainerError], object] | None = None,
) -> Evaluation:
    """Return sums of each model in float64, at temperature 1.

    settings: of `OF_A_RUN`, data, batch_size, device and teacher, and the parts that name models and data; without a
    teacher there is only the loss on the text. An own evaluation of these parts is used, and has their temperature.
    whole: over the whole text; by default over what a run on it holds back and evaluates. cache: a directory with sums
    of earlier evaluations, which are taken from there and added; those of own parts are not, as their code may change.
    One model is in memory at a time, beside the teacher. done: called after each model, with those so far. unfit:
    called with the error of a model that is left out then; by default it is raised. Errors: those of `load_saved`, of
    the data and of the parts, `DataError` for a token that a model lacks, `VocabularyError` for a teacher with other
    tokens, `LogitsError` for logits that are not finite; each names the model.
    """
    with create_run(settings, Run, lines=SilentLines()) as run:
        bench, models = Evaluator(run, settings, whole=whole), list[Evaluated]()
        teacher = bench.teacher
        evaluation = Evaluation(
            paths=paths,
            text=_source(run),
            whole=whole,
            settings=settings,
            device=bench.device,
            teacher=None if teacher is None else SavedModel(path=teacher.path, digest=teacher.digest),
            models=models,
            config=eval_config(run, whole=whole, teacher=None if teacher is None else teacher.digest),
        )
        for path in paths:
            try:
                models.append(_evaluated(path, bench, evaluation.config, cache))
            except TrainerError as error:
                if unfit is None:
                    raise
                unfit(error)
            else:
                done(evaluation)
    return evaluation


def _source(run: Run) -> Source:
    data = run.settings.data
    packaged = "the packaged text" if run.unit == "byte" else f"the data of {run.settings.parts}"
    name = packaged if data is None else str(data)
    return Source(name=name, digest=run.digests.get("data_sha256"), unit=run.unit)


def _evaluated(path: Path, bench: Evaluator, config: EvalConfig, cache: Path | None) -> Evaluated:
    student = bench.student(path)
    if cache is None or config.own is not None:
        return Evaluated(path=path, digest=student.digest, sums=bench.sums(student))
    computed = {"device": device_name(bench.device), "versions": versions()}
    identity = {**asdict(config), "model": student.digest, **computed}
    entry = produce_once(cache, "evaluation", identity, lambda place: _write(place / SUMS, bench.sums(student)))
    return Evaluated(path=path, digest=student.digest, sums=_read(entry / SUMS))


def _write(path: Path, sums: Mapping[str, MetricSum]) -> None:
    path.write_text(json.dumps({name: asdict(total) for name, total in sums.items()}) + "\n", encoding="utf-8")


def _read(path: Path) -> dict[str, MetricSum]:
    return {name: MetricSum(**total) for name, total in json.loads(path.read_text(encoding="utf-8")).items()}


def table(evaluation: Evaluation) -> list[str]:
    """Return a line about what was evaluated, one with the names of the metrics, and one for each model.

    A metric that a model lacks is "-". The last line does not depend on the models before, so lines can be printed one
    by one.
    """
    rows = [{"model": str(model.path)} | _texts(model) for model in evaluation.models]
    widths = {name: max(len(name), NUMBER) for name in ("model", *_columns(evaluation))}
    widths["model"] = max(len(str(path)) for path in (*evaluation.paths, "model"))
    head = {name: name for name in widths}
    lines = ["  ".join(f"{row.get(name, '-'):<{width}}" for name, width in widths.items()) for row in [head, *rows]]
    return [_conditions(evaluation), *(line.rstrip() for line in lines)]


def _columns(evaluation: Evaluation) -> Iterable[str]:
    """Return the metrics of every line: those that the evaluation can have, or of the first model for an own one."""
    if evaluation.config.own is not None:
        return evaluation.models[0].metrics
    names = metric_names(evaluation.settings, taught=evaluation.teacher is not None)
    return derived({name: MetricSum(0.0, 1) for name in names})


def _conditions(evaluation: Evaluation) -> str:
    settings, text, teacher = evaluation.settings, evaluation.text, evaluation.teacher
    against = "" if teacher is None else f", against {teacher.path or 'their teacher'}"
    if evaluation.config.own is not None:
        return f"{text.name} ({_part(evaluation)}), by {settings.parts}{against}"
    count = evaluation.models[0].sums["hard_loss"].count
    rows = f"sequences of {settings.length}"
    if settings.documents is not None:
        rows = f"{'padded' if settings.documents == 'pad' else 'packed'} documents of at most {settings.length}"
    computed = f", in {settings.dtype}" if settings.dtype == "bfloat16" else ""
    return f"{text.name} ({_part(evaluation)}): {count} {text.unit}s in {rows}{computed}{against}"


def _part(evaluation: Evaluation) -> str:
    return evaluation.config.part


def _texts(evaluated: Evaluated) -> dict[str, str]:
    return {name: f"{value:.6g}" for name, value in evaluated.metrics.items()}


def report(evaluation: Evaluation) -> dict[str, Any]:
    """Return the evaluation as JSON values."""
    text, teacher = evaluation.text, evaluation.teacher
    of_teacher = None if teacher is None else {"path": _json_path(teacher.path), "sha256": teacher.digest}
    return {
        "schema": "reference-trainer/evaluation/1",
        "text": {"name": text.name, "sha256": text.digest, "part": _part(evaluation)},
        "unit": text.unit,
        "evaluation": evaluation.config.in_json(),
        **{name: getattr(evaluation.settings, name) for name in OF_A_RUN},
        "teacher": of_teacher,
        "device": device_name(evaluation.device),
        "versions": versions(),
        "models": [_entry(model) for model in evaluation.models],
    }


def _entry(evaluated: Evaluated) -> dict[str, Any]:
    return {
        "path": _json_path(evaluated.path),
        "sha256": evaluated.digest,
        "sums": {name: {"sum": total.sum, "count": total.count} for name, total in evaluated.sums.items()},
        "metrics": evaluated.metrics,
    }


def _json_path(path: Path | None) -> str | None:
    return None if path is None else path_in_json(path)
