"""A teacher and a student that are tables of logits, one row for each token.

Shape letters: B batch, T position, V vocabulary, K token ids with a row in a table.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from reference_trainer.distillation.passes import OncePass
from reference_trainer.distillation.protocols import Batch, StudentPass
from reference_trainer.errors import ProviderError, SettingError, ShapeError

__all__ = ["FixtureStudent", "FixtureTeacher"]


class FixtureTeacher:
    """A teacher whose logits after token k are row k of `logits_table`, floating [K, V].

    The table is copied without its graph. Raise `ShapeError` for another table, `ProviderError` for a token without a
    row.
    """

    def __init__(self, logits_table: Tensor) -> None:
        self._table_KV = _copied_table(logits_table)

    @property
    def vocab_size(self) -> int:
        return self._table_KV.shape[1]

    def logits(self, batch: Batch) -> Tensor:
        return self._table_KV[_row_indices("teacher", self._table_KV, batch)]


class FixtureStudent:
    """A student that is a table of logits, floating [K, V]: gradient descent in logit space, without a model.

    `backward` updates the table immediately: learning_rate * gradient[b, t] is subtracted from row tokens[b, t] for
    every b and t, and gradients of one row add up. `logits_table` returns a copy of the current table. Raise
    `ShapeError` for another table, `ProviderError` for a token without a row, `SettingError` for a learning rate that
    is negative or not finite.
    """

    def __init__(self, logits_table: Tensor, learning_rate: float) -> None:
        if not isinstance(learning_rate, int | float) or not 0 <= learning_rate < float("inf"):
            raise SettingError(f"invalid value {learning_rate!r} for 'learning_rate': expected a finite number >= 0")
        self._table_KV = _copied_table(logits_table)
        self._learning_rate = learning_rate

    @property
    def vocab_size(self) -> int:
        return self._table_KV.shape[1]

    @property
    def logits_table(self) -> Tensor:
        return self._table_KV.clone()

    def forward(self, batch: Batch) -> StudentPass:
        rows_BT = _row_indices("student", self._table_KV, batch)

        def descend(gradient_BTV: Tensor, hidden_gradients: Sequence[Tensor | None]) -> None:
            change_BTV = -self._learning_rate * gradient_BTV.to(self._table_KV)
            self._table_KV.index_add_(0, rows_BT.flatten(), change_BTV.flatten(0, 1))

        return OncePass(self._table_KV[rows_BT], descend)


def _copied_table(logits_table: Tensor) -> Tensor:
    if not isinstance(logits_table, Tensor) or not logits_table.is_floating_point() or logits_table.dim() != 2:
        read = list(logits_table.shape) if isinstance(logits_table, Tensor) else type(logits_table).__name__
        raise ShapeError(f"invalid table of logits: {read}, expected a floating tensor [K, V]")
    return logits_table.detach().clone()


def _row_indices(model: str, table_KV: Tensor, batch: Batch) -> Tensor:
    tokens_BT = batch.tokens.to(table_KV.device).long()
    outside_BT = (tokens_BT < 0) | (tokens_BT >= len(table_KV))
    if outside_BT.any():
        token = tokens_BT[outside_BT][0]
        raise ProviderError(
            f"token {token} has no row in the {model}'s table of {len(table_KV)}; probably the tokenizers differ"
        )
    return tokens_BT
