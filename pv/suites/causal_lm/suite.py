"""The suite `causal-lm`: the bench of a language model, and the claims.

The claims are about randomness, causality, padding, packing, the loss, saving, and the cache.
"""

import inspect
import io
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import SkipTest

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pv.errors import UsageError
from pv.instrument.coverage import seen
from pv.suites import logits as logit_claims
from pv.suites.bench import CallableBench, judge, takes_nothing
from pv.suites.logits import TOLERANCE, Row, difference_cause, relative_difference, sample_rows

FEATURES = {"mask": ("attention_mask",), "loss": ("labels",), "cache": ("past_key_values", "cache")}
"""The features of a model and the usual names of their argument. A model with the feature takes one of these names."""

SEGMENTS = ("segments", "segment_ids", "document_ids")
"""The usual names of the argument with the number of the document of each token."""

EXPECTED = (
    "expected a function or class without required arguments that returns a module, which is called with input_ids "
    "[N, T] and, if it takes one, an attention_mask [N, T]: write `def make(): return MyModel(MyConfig(layers=2))`"
)


def bench(subject: Callable[[], nn.Module], directory: Path | None) -> "Bench":
    """Return the bench of a function or class that creates a model."""
    return Bench(subject)


class Bench(CallableBench):
    """A function or class without arguments that creates a model.

    The model is tried in eval mode, in float32 or wider, with trainable weights that are large enough to show a fault.
    The subject may have an attribute `packing`, the name of the argument that separates packed documents.
    """

    def __init__(self, factory: Callable[[], nn.Module]) -> None:
        before = set(seen)
        super().__init__(factory)
        self.model = self.build()
        redraw(self.model)
        self.parameters = inspect.signature(self.model.forward).parameters
        config = getattr(self.model, "config", None)
        self.pad = int(getattr(config, "pad_token_id", None) or 0)
        self.mask_type = torch.long
        predicted = self._first_logits().shape[-1]
        vocabulary = min(predicted, getattr(config, "vocab_size", predicted), 99)
        self.tokens = [token for token in range(vocabulary) if token != self.pad]
        self.rows = sample_rows(self.tokens)
        self._raises: dict[str, str] = {}
        self.set_features(self._missing_features())
        self.reached = seen - before

    def build(self, seed: int = 0) -> nn.Module:
        """Return a new model."""
        if isinstance(self.subject, nn.Module) or not takes_nothing(self.subject):
            raise UsageError(f"the subject cannot be called without arguments; {EXPECTED}")
        torch.manual_seed(seed)
        model = self.subject()
        if not isinstance(model, nn.Module):
            raise UsageError(f"the subject returned {type(model).__name__}; {EXPECTED}")
        # In bfloat16, rounding errors are larger than the differences between correct and wrong logits.
        narrow = any(parameter.dtype in (torch.float16, torch.bfloat16) for parameter in model.parameters())
        return (model.float() if narrow else model).cpu().eval()

    def missing(self, claim: str, needs: tuple[str, ...]) -> str:
        """Return the reason why a claim does not apply to the model, or "" if it applies."""
        # Every claim depends on the code that creates the model, but this code ran before the claim was known.
        seen.update(self.reached)
        return super().missing(claim, needs)

    def _missing_features(self) -> dict[str, str]:
        """Return a reason for every feature that the model does not have, and "" for every other feature.

        If the forward raises an exception with the argument of a feature, the reason is "", and `require` raises
        SkipTest later.
        """
        tokens = torch.tensor([self.rows[0]])
        results: dict[str, Callable[[], object]] = {
            "mask": lambda: tokens,  # any result but None: `_first_logits` has already passed a mask
            "loss": lambda: self.loss(tokens),
            "cache": lambda: cache_of(self.call(tokens, use_cache=True)),
        }
        reasons = dict.fromkeys((*FEATURES, "packing", "positions"), "")
        for feature, names in FEATURES.items():
            if self.parameters.keys().isdisjoint(names):
                reasons[feature] = f"forward takes no {' or '.join(names)}"
                continue
            try:
                if results[feature]() is None:
                    reasons[feature] = f"forward returns no {feature} for {' or '.join(names)}"
            except Exception as error:
                self._raises[feature] = f"with {' or '.join(names)}, forward raises {type(error).__name__}: {error}"
        if not self._packing_argument():
            reasons["packing"] = f"forward takes none of {', '.join(SEGMENTS)}, and the subject names no `packing`"
        # Equal tokens have equal logits at every position if positions are relative or absent.
        (constant,) = self.logits([[self.tokens[0]] * 3])
        if "position_ids" not in self.parameters and relative_difference(constant[1:], constant[:-1]) > TOLERANCE:
            reasons["positions"] = "positions are absolute, and forward takes no position_ids"
        return reasons

    def require(self, feature: str) -> None:
        """Raise SkipTest if the forward raises an exception with the argument of a feature."""
        if reason := self._raises.get(feature):
            hint = f'if the argument means something else, write `make.features = {{"{feature}": "..."}}`'
            raise SkipTest(f"{reason}; {hint}")

    def _packing_argument(self) -> str:
        """Return the name of the argument that separates packed documents; "" if there is none."""
        usual = next((name for name in SEGMENTS if name in self.parameters), "")
        return str(getattr(self.subject, "packing", "")) or usual

    def call(self, tokens: Tensor, model: nn.Module | None = None, /, **inputs: object) -> Any:
        """Call a model, and return its output.

        Args:
            tokens: Token ids [N, T].
            model: The model; None for the model of this bench.
            inputs: Further arguments. An argument that is None, or that the model does not take, is not passed.
        """
        model = model or self.model
        arguments = {name: value for name, value in inputs.items() if name in self.parameters and value is not None}
        mask_parameter = self.parameters.get("attention_mask")
        if mask_parameter is not None and mask_parameter.default is inspect.Parameter.empty:
            arguments.setdefault("attention_mask", torch.ones_like(tokens))
        mask = arguments.get("attention_mask")
        if isinstance(mask, Tensor):
            arguments["attention_mask"] = mask.to(self.mask_type)
        with torch.no_grad():
            self.used.append(model(tokens, **arguments))
        return self.used[-1]

    def batch(self, tokens: Tensor, model: nn.Module | None = None, /, **inputs: object) -> Tensor:
        """Return the logits [N, T, V] of a forward in float64."""
        return logits_of(self.call(tokens, model, **inputs), tokens)

    def loss(self, tokens: Tensor) -> Tensor | None:
        """Return the loss of tokens that are their own labels; None if the model returns no loss."""
        return find_tensor(self.call(tokens, labels=tokens), "loss", 0)

    def logits(self, rows: Sequence[Row]) -> list[Tensor]:
        """Return the logits of each row. Rows are padded on the right. A mask is passed only if there is padding."""
        tokens, mask = pad_rows(rows, self.pad, left=False)
        return unpad(self.batch(tokens, attention_mask=None if mask.all() else mask), mask)

    def left_padded(self, rows: Sequence[Row], pad: int | None = None) -> list[Tensor]:
        """Return the logits of each row. Rows are padded on the left."""
        tokens, mask = pad_rows(rows, self.pad if pad is None else pad, left=True)
        # The position of a token is the number of real tokens before it; padding gets 0.
        positions = (mask.cumsum(dim=1) - 1).clamp(min=0)
        return unpad(self.batch(tokens, attention_mask=mask, position_ids=positions), mask)

    def packed(self, rows: Sequence[Row]) -> list[Tensor]:
        """Return the logits of each row. All rows are packed into one row."""
        lengths = torch.tensor([len(row) for row in rows])
        tokens = torch.tensor([token for row in rows for token in row])
        documents = torch.repeat_interleave(torch.arange(1, len(rows) + 1), lengths)
        positions = torch.cat([torch.arange(len(row)) for row in rows])
        inputs: dict[str, object] = {self._packing_argument(): documents[None], "position_ids": positions[None]}
        return list(self.batch(tokens[None], use_cache=False, **inputs)[0].split(lengths.tolist()))

    def cached(self, row: Row, first: int) -> Tensor:
        """Return the logits [T, V] of a row that is passed with a cache.

        Args:
            row: The row.
            first: The number of tokens of the first forward. Every later forward gets one token.
        """
        name = next(name for name in FEATURES["cache"] if name in self.parameters)
        cache, logits = None, []
        for tokens in torch.tensor([row]).split([first] + [1] * (len(row) - first), dim=1):
            output = self.call(tokens, use_cache=True, **{name: cache})
            cache = cache_of(output)
            logits.append(logits_of(output, tokens)[0])
        return torch.cat(logits)

    def _first_logits(self) -> Tensor:
        """Return the logits of a first forward, and set `mask_type` to a dtype of masks that the model takes."""
        tokens, mask, errors = torch.tensor([[1, 2], [2, 1]]), torch.ones(2, 2), []
        for self.mask_type in (torch.long, torch.bool):
            try:
                return self.batch(tokens, attention_mask=mask)
            except UsageError:
                raise
            except Exception as error:
                errors.append(error)
        raise UsageError(f"the model cannot be called with tokens [2, 2]: {errors[0]}; {EXPECTED}") from errors[0]


@torch.no_grad()
def redraw(model: nn.Module) -> None:
    """Replace the trainable matrices of a model by random ones, and add noise to trainable vectors.

    Small initial weights could hide faults.
    """
    for weight in model.parameters():
        if weight.requires_grad:
            noise = torch.randn_like(weight)
            # Divide by the square root of the number of inputs, so that activations keep their size. To a vector, such
            # as the scale of a norm, only small noise is added.
            weight.copy_(noise * weight.shape[-1] ** -0.5 if weight.dim() > 1 else weight + 0.05 * noise)


def pad_rows(rows: Sequence[Row], pad: int, *, left: bool) -> tuple[Tensor, Tensor]:
    """Pad rows with the token `pad`, and return tokens [N, T] and their mask [N, T], 0 for padding."""
    width = max(map(len, rows))
    tokens = torch.full((len(rows), width), pad)
    mask = torch.zeros(len(rows), width, dtype=torch.long)
    for number, row in enumerate(rows):
        positions = slice(width - len(row), width) if left else slice(len(row))
        tokens[number, positions] = torch.tensor(row)
        mask[number, positions] = 1
    return tokens, mask


def unpad(logits: Tensor, mask: Tensor) -> list[Tensor]:
    """Return the logits of each row without its padding."""
    return [row_logits[row.bool()] for row_logits, row in zip(logits, mask, strict=True)]


def find_tensor(output: object, name: str, dimensions: int) -> Tensor | None:
    """Return the first tensor with a number of dimensions in a model's output; None if there is none.

    Args:
        output: A mapping, an object with attributes, a tuple of tensors, or a tensor.
        name: The key or attribute with the tensor. If an object does not have the attribute, it is the value itself.
        dimensions: The number of dimensions.
    """
    value = output.get(name) if isinstance(output, Mapping) else getattr(output, name, output)
    items = value if isinstance(value, tuple) else (value,)
    return next((item for item in items if isinstance(item, Tensor) and item.dim() == dimensions), None)


def cache_of(output: object) -> object:
    """Return the cache in an attribute or item of a model's output; None if there is none."""
    items = output if isinstance(output, Mapping) else {}
    candidates = (value for name in FEATURES["cache"] for value in (getattr(output, name, None), items.get(name)))
    return next((candidate for candidate in candidates if candidate is not None), None)


def logits_of(output: object, tokens: Tensor) -> Tensor:
    """Return the logits [N, T, V] in a model's output, in float64. Raise UsageError if a token has no logits."""
    logits = find_tensor(output, "logits", 3)
    if logits is None or logits.shape[:2] != tokens.shape:
        returned = type(output).__name__ if logits is None else f"logits {tuple(logits.shape)}"
        raise UsageError(
            f"the model returned {returned} for tokens {tuple(tokens.shape)}: "
            "expected logits [N, T, V] of all tokens, as a tensor or as .logits; "
            "if it returns only the logits of the last token, write a subclass that returns the logits of all tokens"
        )
    return logits.double()


LOADING_TOLERANCE = 1e-3
"""Tolerance of logits after loading, relative to the largest logit.

The buffers of a model in bfloat16 are rounded, but `from_pretrained` computes them again without rounding.
"""


def falsify_evaluation_draws_nothing(bench: Bench) -> None:
    logit_claims.assert_seed_changes_nothing(bench.logits, bench.rows)


def falsify_no_token_sees_the_future(bench: Bench) -> None:
    logit_claims.assert_no_later_token_is_seen(bench.logits, bench.tokens)


def falsify_other_rows_change_nothing(bench: Bench) -> None:
    cause = "rows are mixed, the mask is inverted, or something is normalised over the batch or over positions"
    logit_claims.assert_batch_changes_no_row(bench.logits, bench.logits, bench.rows, lambda: cause)


def falsify_masked_tokens_are_not_seen(bench: Bench) -> None:
    changed = bench.left_padded(bench.rows, pad=bench.tokens[-1])
    for before, after, row in zip(bench.left_padded(bench.rows), changed, bench.rows, strict=True):
        difference = relative_difference(after, before)
        cause = difference_cause(difference, "the mask is ignored, inverted, or taken from another row")
        assert difference < TOLERANCE, (
            f"other tokens where attention_mask is 0, on the left of a row of {len(row)} tokens, change the logits of "
            f"the row by {difference:.2g} times the largest logit: {cause}"
        )


def falsify_left_padding(bench: Bench) -> None:
    cause = "positions count the padding on the left"
    logit_claims.assert_batch_changes_no_row(bench.left_padded, bench.logits, bench.rows, lambda: cause)


def falsify_packed_documents_are_isolated(bench: Bench) -> None:
    before = bench.packed(bench.rows)
    for k, row in enumerate(bench.rows):
        # Change one document at a time, and compare the logits of the other documents.
        after = bench.packed([*bench.rows[:k], _other_tokens(bench, row), *bench.rows[k + 1 :]])
        changed = [i + 1 for i in range(len(before)) if i != k and relative_difference(after[i], before[i]) > TOLERANCE]
        assert not changed, (
            f"other tokens in document {k + 1} of a packed row change the logits of the documents {changed}: other "
            "documents of the packed row are seen"
        )
    if "positions" in bench.lacks:
        # Without position_ids, the model computes positions within each document, or counts them over the whole row.
        # In the second case, the logits of later documents change when the first document is shorter, although they do
        # not see this document. Then they cannot equal the logits of single documents, so these are not compared.
        shorter = bench.packed([bench.rows[0][:-1], *bench.rows[1:]])
        if any(relative_difference(a, b) > TOLERANCE for a, b in zip(shorter[1:], before[1:], strict=True)):
            return
    cause = "other documents of the packed row are seen, or positions do not start again"
    logit_claims.assert_batch_changes_no_row(bench.packed, bench.logits, bench.rows, lambda: cause)


def _other_tokens(bench: Bench, row: Row) -> list[int]:
    """Return a row of the same length in which every token is replaced by another token."""
    return [bench.tokens[(bench.tokens.index(token) + 1) % len(bench.tokens)] for token in row]


def falsify_labels_are_shifted_once(bench: Bench) -> None:
    bench.require("loss")
    tokens = torch.tensor([bench.rows[0], bench.rows[0][::-1]])
    logits, returned = bench.batch(tokens), bench.loss(tokens)
    assert returned is not None, "forward returns no loss for labels"
    loss = float(returned)
    # The correct loss shifts the labels once. The other two losses are known mistakes.
    unshifted, expected, twice = (cross_entropy(logits, tokens, shift) for shift in range(3))
    mistakes = {
        "labels that are not shifted (if labels must be next tokens, name the claim in `not_claimed`)": unshifted,
        "labels that are shifted twice": twice,
        "a sum that is not divided": expected * tokens[:, 1:].numel(),
    }
    causes = " or ".join(name for name, value in mistakes.items() if near(loss, value))
    fault = (
        f"with labels equal to the tokens [2, 7], the loss is {loss:.6f}; the mean over the {tokens[:, 1:].numel()} "
        f"next tokens is {expected:.6f}"
    )
    judge(near(loss, expected), fault, f"; it is the loss of {causes}" if causes else "")


def cross_entropy(logits: Tensor, labels: Tensor, shift: int) -> float:
    """Return the mean cross-entropy of labels. The logits `shift` positions before a label predict the label."""
    return float(F.cross_entropy(logits[:, : logits.shape[1] - shift].flatten(0, 1), labels[:, shift:].flatten()))


def near(actual: float, expected: float) -> bool:
    """Return whether two losses are equal up to `TOLERANCE`."""
    return math.isclose(actual, expected, rel_tol=TOLERANCE)


def falsify_loading_changes_nothing(bench: Bench) -> None:
    tokens = torch.tensor([bench.rows[0]])
    expected, tied = bench.batch(tokens), shared_parameters(bench.model)
    for loading, model in load_copies(bench):
        names = [" and ".join(sorted(group)) for group in tied - shared_parameters(model)]
        assert not names, f"after {loading}, {'; '.join(names)} are no longer one parameter: training moves them apart"
        difference = relative_difference(bench.batch(tokens, model), expected)
        message = f"after {loading}, logits differ by {difference:.2g} times the largest logit: a weight is not saved"
        assert difference < LOADING_TOLERANCE, message


def load_copies(bench: Bench) -> Iterator[tuple[str, nn.Module]]:
    """Yield copies of the bench's model that were saved and loaded, each with the name of the loading function."""
    file = io.BytesIO()
    torch.save(bench.model.state_dict(), file)
    file.seek(0)
    # The new model has other initial weights. A weight that is not saved keeps its initial value: the logits differ.
    model: Any = bench.build(seed=1)
    model.load_state_dict(torch.load(file))
    yield "load_state_dict", model
    if hasattr(model, "save_pretrained") and hasattr(model, "from_pretrained"):
        with tempfile.TemporaryDirectory() as directory, suppress(TypeError):  # a method may need further arguments
            model.save_pretrained(directory)
            model = type(model).from_pretrained(directory).eval()
            yield "from_pretrained", model


def shared_parameters(model: nn.Module) -> set[frozenset[str]]:
    """Return the set of names of each parameter that has several names, such as a tied weight."""
    names: dict[int, set[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), set()).add(name)
    return {frozenset(group) for group in names.values() if len(group) > 1}


def falsify_cache_changes_nothing(bench: Bench) -> None:
    bench.require("cache")
    (expected,) = bench.logits(bench.rows[:1])
    actual = bench.cached(bench.rows[0], 3)
    wrong = [k + 1 for k in range(7) if relative_difference(actual[k], expected[k]) >= TOLERANCE]
    assert not wrong, (
        f"after 3 tokens and then one token at a time, tokens {wrong} of 7 have other logits with the cache than "
        "without it: positions start again or are off by one, or the mask leaves out a part of the cache"
    )
