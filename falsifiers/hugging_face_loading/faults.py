"""Wrong versions of public functions: the faults that the contract declares."""

from dataclasses import replace
from typing import Any

from torch import nn


def first_layer_alone(original: Any, name: str, model: Any, backend: Any = None) -> None:
    from reference_trainer.training.update import layers_of

    original(name, nn.ModuleList(layers_of(model)[:1]), backend)


def wrapped_layers(original: Any, name: str, model: Any, backend: Any = None) -> None:
    """Replace layers by compiled wrappers, whose weights have other names."""
    import torch

    layers = model.model.model.layers
    for number, layer in enumerate(layers):
        layers[number] = torch.compile(layer, backend=backend)


def compiled_under_no_grad(original: Any, name: str, model: Any, backend: Any = None) -> None:
    """Compile a function of the layer that is called without a graph."""
    import torch

    original(name, model, backend)
    for layer in model.model.model.layers:
        layer._compiled_call_impl = torch.no_grad()(layer._compiled_call_impl)


def attention_ignored(original: Any, source: Any, **options: Any) -> Any:
    return original(replace(source, attention=None) if hasattr(source, "attention") else source, **options)


def revision_of_the_student(original: Any, settings: Any) -> Any:
    return replace(original(settings), revision=settings.student.revision)


def quantization_ignored(original: Any, settings: Any) -> Any:
    return replace(original(settings), quantization=None)


def student_quantized(original: Any, settings: Any) -> Any:
    return replace(original(settings), quantization=settings.teacher.quantization)


def whole_loaded(original: Any, *arguments: Any, **options: Any) -> None:
    pass


def another_adapter(original: Any, base: Any, place: Any, *, seed: int, **options: Any) -> Any:
    return original(base, place, seed=seed + 1, **options)


def looked_up_by_all(original: Any, source: Any, *, dtype: Any, directory: Any) -> Any:
    from reference_trainer.huggingface.models import download

    return original(source, dtype=dtype, directory=download(source))


def hub_not_checked(original: Any, source: Any, missing: str) -> None:
    pass


def missing_weights_drawn(original: Any, source: Any, **options: Any) -> Any:
    from transformers import AutoModelForCausalLM

    from reference_trainer.errors import ModelFileError
    from reference_trainer.huggingface.models import Causal

    try:
        return original(source, **options)
    except ModelFileError:
        return Causal(AutoModelForCausalLM.from_pretrained(source.place, dtype=options["dtype"]))
