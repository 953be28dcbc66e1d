"""LoRA adapters of a causal model, by peft: the base model is frozen; only the adapter is trained, saved and exported.

Source: Hu et al. 2021, arXiv:2106.09685.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

import torch
from torch import Tensor, nn

from reference_trainer.errors import SettingError, first_line
from reference_trainer.huggingface.models import Causal, loading
from reference_trainer.models.loading import StoredTensor, lend_memory, return_memory, weights_of


class AdapterOptions(TypedDict):
    """Arguments of `add_adapter` that settings determine."""

    rank: int
    options: Mapping[str, object]
    seed: int


class Adapted(Causal):
    """A causal model in which only the parameters of an adapter require a gradient.

    `state_dict` and `load_state_dict` handle only these parameters, so a checkpoint does not contain the frozen base.
    """

    def state_dict(self, *args: object, **options: Any) -> dict[str, object]:  # type: ignore[override]  # torch has overloads
        trained = {name for name, parameter in self.named_parameters() if parameter.requires_grad}
        return {name: tensor for name, tensor in super().state_dict(*args, **options).items() if name in trained}

    def load_state_dict(self, state_dict: Mapping[str, object], strict: bool = True, assign: bool = False) -> object:
        """Load the adapter. Raise `RuntimeError` for missing or unknown names, even if `strict` is False."""
        if changed := sorted(self.state_dict().keys() ^ state_dict.keys()):
            raise RuntimeError(f"missing or unknown weights of the adapter: {', '.join(changed[:3])}")
        # Not strict, because the state has no weights of the base.
        return super().load_state_dict(state_dict, strict=False, assign=assign)


def frozen_weights(model: nn.Module) -> dict[str, Tensor | StoredTensor]:
    """Return the parameters that require no gradient, by name; for a skeleton, return its stored weights."""
    weights = weights_of(model)
    return {name: weights[name] for name, parameter in model.named_parameters() if not parameter.requires_grad}


def add_adapter(base: Causal, place: Path, *, rank: int, options: Mapping[str, object], seed: int) -> Adapted:
    """Add a new adapter with random weights to a model in place, and return the adapted model.

    The global random generators are not changed.

    Args:
        base: The model.
        place: The directory or id of the base, for the configuration of the adapter.
        rank: The rank of the LoRA matrices.
        options: Arguments of peft's `LoraConfig`. By default, `lora_alpha` is twice the rank, and all linear layers
            except the output layer are adapted.
        seed: The seed of the adapter's weights.

    Raises:
        SettingError: peft refuses the options.
    """
    from peft import LoraConfig, get_peft_model

    chosen = {"lora_alpha": 2 * rank, "target_modules": "all-linear", **options, "r": rank, "task_type": "CAUSAL_LM"}
    model = base.model
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would also seed the generators of the GPUs
        try:
            with warnings.catch_warnings():
                # peft 0.21 reads an attribute that transformers 5 deprecates; the user cannot avoid this warning.
                warnings.simplefilter("ignore", FutureWarning)
                peft_model = get_peft_model(model, LoraConfig(**chosen))
        except (TypeError, ValueError) as error:
            raise SettingError(f"lora_options: {first_line(error)}; expected options of peft's LoraConfig") from error
    peft_model.peft_config["default"].base_model_name_or_path = os.fspath(place.resolve() if place.exists() else place)
    return Adapted(peft_model)


def add_adapter_to_skeleton(
    base: Causal, place: Path, *, rank: int, options: Mapping[str, object], seed: int
) -> Adapted | None:
    """Call `add_adapter` for a skeleton: the adapter is in memory, the weights of the base stay in files.

    Return None if the options initialise the adapter from the weights of the base, or if peft refuses the options. The
    caller must then load the whole model and call `add_adapter`, which raises the error for invalid options.
    """
    # peft reads the device and the dtype of the weights. The temporary weights are NaN, so that `return_memory` detects
    # an adapter that was computed from weights: this adapter is NaN too.
    lend_memory(base)
    try:
        adapted = add_adapter(base, place, rank=rank, options=options, seed=seed)
    except Exception:  # of any class, because a factorization of NaN fails with errors of other libraries
        return None
    return adapted if return_memory(adapted) else None


def check_merge(student: Causal) -> None:
    """Raise `SettingError` if the adapter has a bias for a layer without a bias: `merge_adapter` cannot add it."""
    for name, layer in student.named_modules():
        has_lora_bias = getattr(layer, "lora_bias", {}).get("default")
        if has_lora_bias and getattr(layer.get_base_layer(), "bias", None) is None:
            raise SettingError(
                f"lora_options: lora_bias cannot be merged into {name}, which has no bias; leave out --lora-merge or "
                "lora_bias"
            )


def merge_adapter(student: Causal) -> Causal:
    """Merge the adapter of a student into the weights of its base in place, and return the base.

    If embedding and output layer are tied and one of them has an adapter, they are untied: the merged weights are for
    this layer only.
    """
    from peft.tuners.tuners_utils import BaseTunerLayer

    adapted_model = student.model
    base = adapted_model.get_base_model()
    embedding, output = base.get_input_embeddings(), base.get_output_embeddings()
    is_tied = bool(embedding and output) and embedding.weight is output.weight
    if is_tied and (isinstance(embedding, BaseTunerLayer) or isinstance(output, BaseTunerLayer)):
        layer = output.get_base_layer() if isinstance(output, BaseTunerLayer) else output
        layer.weight = nn.Parameter(layer.weight.detach().clone(), requires_grad=False)
        base.config.tie_word_embeddings = base.config.get_text_config().tie_word_embeddings = False
    return Causal(adapted_model.merge_and_unload())


def adapter_weights(directory: Path, like: Adapted) -> dict[str, Tensor]:
    """Return the weights of a saved adapter, by their names in `like`.

    A tensor that `like` lacks keeps its saved name. Raise `ModelFileError` if peft cannot load the adapter, and
    `SettingError` if its scale differs from the scale of `like`.
    """
    from peft import PeftConfig
    from peft.utils import load_peft_weights

    with loading(directory, expected="an adapter of peft"):
        config, weights = PeftConfig.from_pretrained(os.fspath(directory)), load_peft_weights(os.fspath(directory))
    peft_model = like.model
    for name in ("lora_alpha", "use_rslora"):  # the scale is stored in the configuration, not in the weights
        saved, wanted = getattr(config, name, None), getattr(peft_model.peft_config["default"], name)
        if saved != wanted:
            raise SettingError(f"{directory} has {name} {saved}, but the run has {wanted}; use --lora-options")
    names = {_saved_name(name): name for name in like.state_dict()}
    return {names.get(name, name): tensor.to("cpu") for name, tensor in weights.items()}


def _saved_name(name: str) -> str:
    """Return the name under which peft saves a tensor: without the name of the adapter, "default"."""
    name = name.removeprefix("model.").replace(".modules_to_save.default", "").replace(".default", "")
    return name.removesuffix(".weight") if ".lora_magnitude_vector." in name else name  # a vector of DoRA
