"""What the numbers of an evaluation depend on, besides the model that is evaluated."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from reference_trainer.pipeline.parts import Run
from reference_trainer.storage.produce_once import identity_digest

__all__ = ["EvalConfig", "eval_config"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalConfig:
    """The identity of an evaluation, by content: numbers can be compared if it is equal.

    data, tokenizer, chat_template, teacher: SHA-256, or None without one; that of a teacher is of its weights, of
    whatever path or revision. top_k: the kept tokens of its outputs, None for every logit: the divergence is then that
    of top_k + 1 outcomes. part: by `Run.evaluated_part`, such as "held back" or "whole". length, documents,
    separator: the rows. vocabulary: how two vocabularies are made one. accept_depth, dtype: as in `Settings`. own:
    class and arguments of an own evaluation. layers: of hidden states that an own evaluation can match; None for the
    built-in one, which reads none.

    Batch size, device and paths are not part of it. soft_loss and kl_at_T of a run also depend on its temperature and
    divergence, an own evaluation on its code.
    """

    data: str | None
    part: str
    tokenizer: str | None
    chat_template: str | None
    teacher: str | None
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
        """Return the SHA-256 of the fields, in hexadecimal digits; different ones have different digests."""
        return identity_digest(asdict(self))

    def in_json(self) -> dict[str, Any]:
        """Return the fields and their digest as JSON values."""
        return {"sha256": self.digest, **asdict(self)}


def eval_config(run: Run, *, whole: bool, teacher: str | None, top_k: int | None = None) -> EvalConfig:
    """Return the identity of evaluations of the run's students.

    teacher: the SHA-256 of its weights. top_k: the kept tokens of its outputs, None for every logit. Without a teacher
    no draft is accepted and no vocabulary shared.
    """
    settings, digests = run.settings, run.digests
    is_own = "evaluate" in run.replaced
    matches = is_own and (settings.feature_weight or settings.feature_weight_end)
    return EvalConfig(
        data=digests.get("data_sha256") if whole else digests.get("eval_data_sha256", digests.get("data_sha256")),
        part=run.evaluated_part(whole=whole),
        tokenizer=digests.get("tokenizer_sha256"),
        chat_template=digests.get("chat_template_sha256"),
        teacher=teacher,
        top_k=top_k,
        length=settings.length,
        documents=settings.documents,
        separator=settings.separator if settings.documents else None,
        vocabulary=None if teacher is None else settings.share_vocabulary,
        accept_depth=0 if teacher is None else settings.accept_depth,
        dtype=settings.dtype,
        own=f"{settings.parts or type(run).__qualname__} {settings.arguments or '{}'}" if is_own else None,
        layers=settings.feature_layers if matches else None,
    )
