"""Call a causal language model, of transformers or a plain module of tokens, and find the features that it lacks."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import SkipTest

import torch
from torch import Tensor, nn

from pv.errors import UsageError
from pv.instrument.coverage import seen
from pv.suites.bench import CallableBench, takes_nothing
from pv.suites.logits import TOLERANCE, Row, off, rows_of

FEATURES = {"mask": ("attention_mask",), "loss": ("labels",), "cache": ("past_key_values", "cache")}
"""The arguments, one of which a model takes that has a feature."""

SEGMENTS = ("segments", "segment_ids", "document_ids")

EXPECTED = (
    "expected a function or class that is called without arguments and returns a module, itself called with input_ids "
    "[N, T] and, if it takes one, an attention_mask [N, T]: write `def make(): return MyModel(MyConfig(layers=2))`"
)


def bench(subject: Any, directory: Path | None) -> "Bench":
    """Return a bench of a function or class that makes a model."""
    return Bench(subject)


class Bench(CallableBench):
    """A model in evaluation mode, in float32 or wider, whose trainable weights are large enough to show a fault.

    The subject takes no arguments. Its attribute `packing` names the argument that separates packed documents.
    """

    write = EXPECTED

    def __init__(self, factory: Callable[[], nn.Module]) -> None:
        before = set(seen)
        super().__init__(factory)
        self.model = redrawn(self.build())
        self.taken = inspect.signature(self.model.forward).parameters
        config = getattr(self.model, "config", None)
        self.pad = int(getattr(config, "pad_token_id", None) or 0)
        self.mask_type = torch.long
        predicted = self._first().shape[-1]
        vocabulary = min(predicted, getattr(config, "vocab_size", predicted), 99)
        self.tokens = [token for token in range(vocabulary) if token != self.pad]
        self.rows = rows_of(self.tokens)
        self._raises: dict[str, str] = {}
        self.set_features(dict.fromkeys((*FEATURES, "packing", "positions"), "") | self._absent())
        self.reached = seen - before

    def build(self, seed: int = 0) -> nn.Module:
        """Return a new model."""
        if isinstance(self.subject, nn.Module) or not takes_nothing(self.subject):
            raise UsageError(f"the subject cannot be called without arguments; {EXPECTED}")
        torch.manual_seed(seed)
        model = self.subject()
        if not isinstance(model, nn.Module):
            raise UsageError(f"the subject returned {type(model).__name__}; {EXPECTED}")
        # In bfloat16, right and wrong logits differ by less than rounding.
        narrow = any(parameter.dtype in (torch.float16, torch.bfloat16) for parameter in model.parameters())
        return (model.float() if narrow else model).cpu().eval()

    def missing(self, claim: str, needs: tuple[str, ...]) -> str:
        """Return the reason why a claim does not apply to the model, or "" if it applies."""
        seen.update(self.reached)  # the model was made before the claim
        return super().missing(claim, needs)

    def _absent(self) -> dict[str, str]:
        """Return the reasons of the missing features, by feature."""
        tokens = torch.tensor([self.rows[0]])
        tries = {"loss": lambda: self.loss(tokens), "cache": lambda: cache_of(self.call(tokens, use_cache=True))}
        reasons = {feature: self._reason(feature, names, tries.get(feature)) for feature, names in FEATURES.items()}
        absent = {feature: reason for feature, reason in reasons.items() if reason}
        if not self._packing():
            absent["packing"] = f"forward takes none of {', '.join(SEGMENTS)}, and the subject names no `packing`"
        # Equal tokens have equal logits everywhere if positions are relative or absent.
        (constant,) = self.logits([[self.tokens[0]] * 3])
        if "position_ids" not in self.taken and off(constant[1:], constant[:-1]) > TOLERANCE:
            absent["positions"] = "positions are absolute, and forward takes no position_ids"
        return absent

    def require(self, feature: str) -> None:
        """Raise SkipTest if the forward raises with the arguments of a feature: the claim is then undecided."""
        if why := self._raises.get(feature):
            hint = f'if they mean something else, say so: `make.features = {{"{feature}": "..."}}`'
            raise SkipTest(f"{why}; {hint}")

    def _reason(self, feature: str, names: tuple[str, ...], attempt: Callable[[], Any] | None) -> str:
        """Return why the model has no feature that needs one of the arguments; "" if it has it, or raises."""
        if not self.taken.keys() & {*names}:
            return f"forward takes no {' or '.join(names)}"
        try:
            return "" if attempt is None or attempt() is not None else f"forward returns none for {' or '.join(names)}"
        except Exception as error:
            self._raises[feature] = f"with {' or '.join(names)}, forward raises {type(error).__name__}: {error}"
            return ""

    def _packing(self) -> str:
        known = (name for name in SEGMENTS if name in self.taken)
        return str(getattr(self.subject, "packing", "")) or next(known, "")

    def call(self, tokens: Tensor, model: nn.Module | None = None, **inputs: Any) -> Any:
        """Return what a forward returns. tokens: [N, T]; of `inputs`, the model gets those that it takes."""
        model = model or self.model
        arguments = {name: value for name, value in inputs.items() if name in self.taken and value is not None}
        if "attention_mask" in self.taken and self.taken["attention_mask"].default is inspect.Parameter.empty:
            arguments.setdefault("attention_mask", torch.ones_like(tokens))
        if "attention_mask" in arguments:
            arguments["attention_mask"] = arguments["attention_mask"].to(self.mask_type)
        with torch.no_grad():
            self.used.append(model(tokens, **arguments))
        return self.used[-1]

    def batch(self, tokens: Tensor, model: nn.Module | None = None, **inputs: Any) -> Tensor:
        """Return the logits [N, T, V] of a forward in float64."""
        return logits_of(self.call(tokens, model, **inputs), tokens)

    def loss(self, tokens: Tensor) -> Tensor | None:
        """Return the loss of tokens that are their own labels, if there is one."""
        return part(self.call(tokens, labels=tokens), "loss", 0)

    def logits(self, rows: Sequence[Row]) -> list[Tensor]:
        """Return the logits of each row, padded on the right; no mask is given where no row is padded."""
        tokens, mask = padded(rows, self.pad, left=False)
        return unpad(self.batch(tokens, attention_mask=None if mask.all() else mask), mask)

    def left_padded(self, rows: Sequence[Row], pad: int | None = None) -> list[Tensor]:
        """Return the logits of each row, padded on the left."""
        tokens, mask = padded(rows, self.pad if pad is None else pad, left=True)
        # The number of real tokens before each one; padding gets 0.
        positions = (mask.cumsum(dim=1) - 1).clamp(min=0)
        return unpad(self.batch(tokens, attention_mask=mask, position_ids=positions), mask)

    def packed(self, rows: Sequence[Row]) -> list[Tensor]:
        """Return the logits of each row, all rows in one."""
        sizes = [len(row) for row in rows]
        tokens = torch.tensor([[token for row in rows for token in row]])
        documents = torch.tensor([[k for k, size in enumerate(sizes, 1) for _ in range(size)]])
        positions = torch.tensor([[place for size in sizes for place in range(size)]])
        inputs: dict[str, Any] = {self._packing(): documents, "position_ids": positions, "use_cache": False}
        return list(self.batch(tokens, **inputs)[0].split(sizes))

    def cached(self, row: Row, first: int) -> Tensor:
        """Return the logits of a row [T, V], given its first tokens and then one by one, with a cache."""
        name = next(name for name in FEATURES["cache"] if name in self.taken)
        cache, logits = None, []
        for part_of in torch.tensor([row]).split([first] + [1] * (len(row) - first), dim=1):
            output = self.call(part_of, use_cache=True, **{name: cache})
            cache = cache_of(output)
            logits.append(logits_of(output, part_of)[0])
        return torch.cat(logits)

    def _first(self) -> Tensor:
        """Return the logits of a first forward; choose the type of masks."""
        tokens, mask, failed = torch.tensor([[1, 2], [2, 1]]), torch.ones(2, 2), []
        for self.mask_type in (torch.long, torch.bool):
            try:
                return self.batch(tokens, attention_mask=mask)
            except UsageError:
                raise
            except Exception as error:
                failed.append(error)
        raise UsageError(f"the model cannot be called with tokens [2, 2]: {failed[0]}; {EXPECTED}") from failed[0]


def redrawn(model: nn.Module) -> nn.Module:
    """Draw the trainable weights of a model again: initial ones can be so small that they hide a fault."""
    with torch.no_grad():
        for weight in (parameter for parameter in model.parameters() if parameter.requires_grad):
            noise = torch.randn_like(weight)
            # Scaled by the square root of the inputs, so that activations keep their size.
            weight.copy_(noise * weight.shape[-1] ** -0.5 if weight.dim() > 1 else weight + 0.05 * noise)
    return model


def padded(rows: Sequence[Row], pad: int, *, left: bool) -> tuple[Tensor, Tensor]:
    """Return tokens [N, T] and their mask."""
    width = max(map(len, rows))
    blanks = [[pad] * (width - len(row)) for row in rows]
    tokens = [[*blank, *row] if left else [*row, *blank] for row, blank in zip(rows, blanks, strict=True)]
    places = [
        torch.arange(width) >= len(blank) if left else torch.arange(width) < width - len(blank) for blank in blanks
    ]
    return torch.tensor(tokens), torch.stack(places).long()


def unpad(logits: Tensor, mask: Tensor) -> list[Tensor]:
    return [row_logits[row.bool()] for row_logits, row in zip(logits, mask, strict=True)]


def part(output: object, name: str, dimensions: int) -> Tensor | None:
    """Return a tensor of an output: by its name, else the first with so many dimensions, else the output itself."""
    value = output.get(name) if isinstance(output, Mapping) else getattr(output, name, output)
    parts = value if isinstance(value, tuple) else (value,)
    return next((part for part in parts if isinstance(part, Tensor) and part.dim() == dimensions), None)


def cache_of(output: object) -> Any:
    candidates = (getattr(output, name, None) for name in FEATURES["cache"])
    return next((candidate for candidate in candidates if candidate is not None), None)


def logits_of(output: object, tokens: Tensor) -> Tensor:
    logits = part(output, "logits", 3)
    if logits is None or logits.shape[:2] != tokens.shape:
        returned = type(output).__name__ if logits is None else f"logits {tuple(logits.shape)}"
        raise UsageError(
            f"the model returned {returned} for tokens {tuple(tokens.shape)}: "
            "expected logits [N, T, V] of all tokens, as a tensor or as .logits; "
            "if it returns those of the last token alone, write a subclass that returns all"
        )
    return logits.double()
