"""Evaluations during a run: their metrics, the best step, and the identity that decides whether metrics compare."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass

import torch
from torch import nn

from reference_trainer.distillation.metrics import EVALUATED, derive_metrics
from reference_trainer.distillation.providers import evaluating
from reference_trainer.distillation.step import MetricSum
from reference_trainer.errors import SettingError
from reference_trainer.pipeline.parts import Run
from reference_trainer.storage.produce_once import identity_digest
from reference_trainer.storage.retention import Best, update_best
from reference_trainer.training.evaluation import evaluated_names
from reference_trainer.training.update import preserve_generators


@contextmanager
def evaluation_mode(modules: Iterable[nn.Module], device: torch.device) -> Iterator[None]:
    """Run the block with the modules in eval mode and without autograd.

    The modes of the modules and the default generators of the CPU and of `device` are restored afterwards, also after
    an exception.
    """
    with ExitStack() as stack:
        stack.enter_context(preserve_generators(device))
        stack.enter_context(torch.no_grad())
        for module in modules:
            stack.enter_context(evaluating(module))
        yield


def check_sums(sums: Mapping[str, MetricSum], owner: str) -> None:
    """Raise `SettingError` unless `sums` is a valid result of `evaluate`: `MetricSum` of Python numbers, by name."""
    if not isinstance(sums, Mapping):
        raise SettingError(f"{owner}.evaluate returned {type(sums).__name__}; expected a dict of MetricSum")
    for name, total in sums.items():
        if not isinstance(total, MetricSum) or type(total.sum) not in (float, int) or type(total.count) is not int:
            raise SettingError(
                f"{owner}.evaluate returned {total!r} for {name!r}; expected MetricSum(sum: float, count: int)"
            )


def evaluation_metrics(sums: Mapping[str, MetricSum]) -> dict[str, float]:
    """Return the metrics of an evaluation by name, with the prefix `eval/`; empty if no token was scored."""
    return {f"{EVALUATED}{name}": value for name, value in derive_metrics(sums).items()}


def check_metric(
    metric: str, accept_depth: int, *, all_logits: bool = True, aligned: bool = False, used_by: str = "best_metric"
) -> None:
    """Raise `SettingError` for a metric that `training.evaluation.evaluate` does not measure.

    Args:
        metric: The name, such as `eval/hard_loss`.
        accept_depth, all_logits, aligned: As for `evaluated_names`.
        used_by: The setting or callback that uses the metric, for the message.
    """
    names = evaluated_names(accept_depth, all_logits=all_logits, aligned=aligned)
    # Some metrics, such as perplexities, are derived from sums: derive all metrics from dummy sums to get their names.
    measured = evaluation_metrics({name: MetricSum(0.0, 1) for name in names})
    if metric not in measured:
        condition = ""
        if aligned:
            condition = " with another tokenizer of a teacher"
        elif not all_logits:
            condition = " with top-k outputs of a teacher"
        raise _unknown_metric(metric, measured, used_by, condition)


def _unknown_metric(metric: str, measured: Iterable[str], used_by: str, condition: str = "") -> SettingError:
    names = ", ".join(sorted(measured))
    return SettingError(f"unknown metric {metric!r} for {used_by!r}{condition} (choose from {names})")


@dataclass(slots=True, kw_only=True)
class BestTracker:
    """Track the best evaluated step by a metric.

    Attributes:
        metric: The name of the metric, such as `eval/hard_loss`.
        mode, min_delta: As for `update_best`.
        best: The best step so far; None before the first finite score. A resumed run starts with the best step of its
            checkpoint.
    """

    metric: str
    mode: str
    min_delta: float
    best: Best | None = None

    def note(self, step: int, metrics: Mapping[str, float]) -> bool:
        """Record the metrics of an evaluation, and return whether the step is the best so far.

        Return False if `metrics` is empty: no token was scored. Raise `SettingError` if other metrics are present, but
        not the tracked one.
        """
        if not metrics:
            return False
        if self.metric not in metrics:
            raise _unknown_metric(self.metric, metrics, "best_metric")
        previous, score = self.best, metrics[self.metric]
        self.best = update_best(previous, step=step, score=score, mode=self.mode, min_delta=self.min_delta)
        return self.best is not previous


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalConfig:
    """The identity of an evaluation. Metrics of two evaluations with equal identities can be compared.

    Batch size, device and paths are not included, because they change metrics by rounding at most. Temperature and
    divergence are not included either: compare soft_loss and kl_at_T only if they are equal. The code of a
    custom evaluation is not included.

    Attributes:
        data, tokenizer, chat_template: SHA-256 of each; None if the run has none.
        teacher_tokenizer, teacher_chat_template: SHA-256 of each; None unless the teacher has another tokenizer.
        teacher: SHA-256 of the teacher's weights, independent of path and revision; None without a teacher.
        top_k: The number of tokens kept in the teacher's outputs; None for all logits. In the divergence, all other
            tokens together are one more outcome.
        part: The result of `Run.evaluated_part`, such as "held back" or "whole".
        length, documents, separator: The settings by which text is divided into rows.
        vocabulary: "cross_tokenizer", or the setting `share_vocabulary`; None without a teacher.
        accept_depth: The setting; 0 without a teacher.
        dtype: The setting.
        own: Class and arguments of a custom evaluation; None for the built-in evaluation.
        layers: The setting `feature_layers`, if a custom evaluation can use it; None for the built-in evaluation.
    """

    data: str | None
    part: str
    tokenizer: str | None
    chat_template: str | None
    teacher: str | None
    teacher_tokenizer: str | None
    teacher_chat_template: str | None
    top_k: int | None
    length: int
    documents: str | None
    separator: str | None
    vocabulary: str | None
    accept_depth: int
    dtype: str
    own: str | None
    layers: str | None

    @property
    def digest(self) -> str:
        """Return the SHA-256 of the fields, in hexadecimal digits."""
        return identity_digest(asdict(self))

    def in_json(self) -> dict[str, object]:
        """Return the fields and their digest as JSON values."""
        return {"sha256": self.digest, **asdict(self)}


def eval_config(run: Run, *, whole: bool, teacher: str | None, top_k: int | None = None) -> EvalConfig:
    """Return the identity of evaluations of the run's students.

    Args:
        run: The run, with the digests of its data.
        whole: Whether all rows are evaluated, and not only held-back rows.
        teacher: The SHA-256 of the teacher's weights; None without a teacher, and then accept_depth and vocabulary have
            no effect.
        top_k: The number of tokens kept in the teacher's outputs; None for all logits.
    """
    # Settings without an effect become None or 0: evaluations that differ only in such settings have equal identities.
    settings, digests = run.settings, run.digests
    data = digests.get("data_sha256")
    vocabulary: str | None = None if teacher is None else settings.teacher.share_vocabulary
    if run.pairs is not None:
        vocabulary = "cross_tokenizer"
    own = None
    if "evaluate" in run.replaced:
        own = f"{settings.run.parts or type(run).__qualname__} {settings.run.arguments or '{}'}"
    matches_features = settings.objective.feature_weight or settings.objective.feature_weight_end
    return EvalConfig(
        data=data if whole else digests.get("eval_data_sha256", data),
        part=run.evaluated_part(whole=whole),
        tokenizer=digests.get("tokenizer_sha256"),
        chat_template=digests.get("chat_template_sha256"),
        teacher=teacher,
        teacher_tokenizer=digests.get("teacher_tokenizer_sha256"),
        teacher_chat_template=digests.get("teacher_chat_template_sha256"),
        top_k=top_k,
        length=settings.data.length,
        documents=settings.data.documents,
        separator=settings.data.separator if settings.data.documents else None,
        vocabulary=vocabulary,
        accept_depth=0 if teacher is None else settings.evaluation.accept_depth,
        dtype=settings.run.dtype,
        own=own,
        layers=settings.objective.feature_layers if own is not None and matches_features else None,
    )
