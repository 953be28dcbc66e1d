"""Wrong versions of functions for attention in packed rows: the faults that the contract declares."""

from typing import Any


def window_too_wide(original: Any, *args: Any, sliding_window: Any = None, **options: Any) -> Any:
    return original(*args, sliding_window=None if sliding_window is None else sliding_window + 1, **options)


def blocks_exchanged(original: Any, *args: Any, **options: Any) -> Any:
    mask = original(*args, **options)
    for name in ("kv_num_blocks", "kv_indices"):
        part, full = getattr(mask, name), getattr(mask, f"full_{name}")
        setattr(mask, name, full)
        setattr(mask, f"full_{name}", part)
    return mask


def documents_ignored(original: Any, *args: Any, documents: Any = None, **options: Any) -> Any:
    return original(*args, **options)


def equal(*_: Any) -> bool:
    return True


def positions_passed_alone(original: Any, self: Any, tokens: Any, segments: Any = None, **options: Any) -> Any:
    from reference_trainer.distillation.packed_rows import packed_rows
    from reference_trainer.huggingface.attention import takes_documents
    from reference_trainer.huggingface.models import positions_of

    if segments is None:
        return original(self, tokens, **options)
    documents = {"documents": packed_rows(segments)} if takes_documents(self.model) else {}
    return self.model(input_ids=tokens, position_ids=positions_of(segments), use_cache=False, **documents)


def dropout_left_out(original: Any, *states: Any, **options: Any) -> Any:
    return original(*states, **options | {"dropout": 0.0})
