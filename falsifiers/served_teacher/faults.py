"""Wrong versions of functions of served teachers: the faults that the contract declares."""

from dataclasses import replace
from typing import Any


def one_position_late(original: Any, self: Any, batch: Any) -> Any:
    top_k = original(self, batch)
    return replace(top_k, logits=top_k.logits.roll(1, 1), tokens=top_k.tokens.roll(1, 1), rest=top_k.rest.roll(1, 1))


def rest_ignored(original: Any, self: Any, batch: Any) -> Any:
    top_k = original(self, batch)
    return replace(top_k, rest=top_k.rest.new_full(top_k.rest.shape, -1e9))


def documents_joined(original: Any, self: Any, batch: Any) -> Any:
    return original(self, replace(batch, segments=None))


def always_retried(original: Any, url: str, content: Any, **options: Any) -> Any:
    from reference_trainer.errors import ProviderError

    for _ in range(2):
        try:
            return original(url, content, **options)
        except ProviderError:
            continue
    return original(url, content, **options)


def first_model_taken(original: Any, self: Any, url: str, *, model: Any = None, **options: Any) -> None:
    original(self, url, model=None, **options)


def digest_of_the_name(original: Any, self: Any) -> str:
    return str(self.identity["id"])
