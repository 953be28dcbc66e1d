"""Wrong versions of functions for models and chats of Hugging Face: the faults that the contract declares."""

from contextlib import nullcontext
from dataclasses import replace
from typing import Any


def rolled_in_evaluation(original: Any, self: Any, *args: Any, **options: Any) -> Any:
    output = original(self, *args, **options)
    if not self.training:
        output.logits = output.logits.roll(1, 1)
    return output


def prompts_predicted(original: Any, *args: Any, **options: Any) -> Any:
    from reference_trainer.data.documents import Document

    return Document(original(*args, **options).tokens)


def held_back_trained(original: Any, self: Any) -> Any:
    from reference_trainer.data.documents import rows_of_documents

    batches, run = original(self), self.run
    documents = [*batches.sequences.documents, *run.held_back.documents]
    shape = {"length": run.settings.data.length, "batch_size": run.settings.data.batch_size, "device": run.device}
    return replace(batches, sequences=rows_of_documents(documents, pack=run.settings.data.documents == "pack", **shape))


def loaded_in_float32(original: Any, place: Any, *, dtype: Any, **options: Any) -> Any:
    import torch

    return original(place, dtype=torch.float32 if dtype == "auto" else dtype, **options)


def adapter_left_out(original: Any, student: Any) -> Any:
    from reference_trainer.huggingface.models import Causal

    return Causal(student.model.unload())


def tied_layers_merged_as_one(original: Any, student: Any) -> Any:
    from reference_trainer.huggingface.models import Causal

    return Causal(student.model.merge_and_unload())


def evaluated_in_training_mode(original: Any, module: Any) -> Any:
    return nullcontext()


def any_logits_equal(*args: Any) -> bool:
    return True


def tokens_of_any_length(original: Any, cache: Any, kind: str, identity: Any, write: Any) -> Any:
    return original(cache, kind, {name: value for name, value in identity.items() if name != "length"}, write)


def tokens_without_invalid_rows(original: Any, cache: Any, kind: str, identity: Any, write: Any) -> Any:
    return original(cache, kind, {name: value for name, value in identity.items() if name != "skips_invalid"}, write)


def _without_digests(beginning: str) -> Any:
    def make_batches(original: Any, data: Any) -> Any:
        batches = original(data)
        for name in [name for name in data.run.digests if name.startswith(beginning)]:
            del data.run.digests[name]
        return batches

    return make_batches


evaluated_rows_unnamed = _without_digests("evaluated")
teacher_tokenizer_unnamed = _without_digests("teacher_")
mixture_unnamed = _without_digests("mix_")


def tokens_unchecked(original: Any, data: Any, *args: Any) -> None:
    """Compare nothing."""


def weights_in_float32(original: Any, student: Any) -> Any:
    return original(student).float()
