"""Attacks on models that are loaded shard by shard, and on weights that are gathered in bfloat16.

The subject has `shard` and `ShardedParallel`, as `ranks.parallel` does.
"""

import copy
from pathlib import Path
from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.func import functional_call

from falsifiers.ranks.falsify_ranks import Collectives
from falsifiers.support.assertions import assert_equal
from falsifiers.support.ranks import run_ranks
from falsifiers.support.runs import scratch
from reference_trainer.models.loading import is_skeleton, skeleton, weight_files

CPU, WIDTH = torch.device("cpu"), 3
SIZES = st.integers(1, 7)


class Layered(nn.Module):
    """Embedding, two layers and a head, which may be tied, with a buffer that files hold and one that they do not."""

    def __init__(self, size: int, tied: bool) -> None:
        super().__init__()
        self.embed = nn.Embedding(size, WIDTH)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.head = nn.Linear(WIDTH, size, bias=False)
        self.register_buffer("shift", torch.zeros(WIDTH))
        self.register_buffer("scale", torch.tensor([0.5, 2.0, 1.0]), persistent=False)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens) * self.scale.to(self.embed.weight.dtype) + self.shift.to(self.embed.weight.dtype)
        for layer in self.layers:
            x = torch.tanh(layer(x)) + x
        logits: Tensor = self.head(x)
        return logits


class Named(nn.Module):
    """A model whose names begin with `model.`, as in `Causal`; the names in its files do not."""

    def __init__(self, model: Layered) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.model(tokens)
        return logits


def model(size: int, tied: bool, dtype: torch.dtype = torch.float32) -> Layered:
    torch.manual_seed(size)
    result = Layered(size, tied).to(dtype)
    result.shift.copy_(torch.tensor([0.25, -1.0, 3.0]))
    return result


def saved(whole: nn.Module, directory: Path, change: str = "") -> list[Path]:
    """Write the tensors of a model into two files, a tied one once, and return them. change: what is wrong in them."""
    tensors = {name: tensor.clone() for name, tensor in whole.state_dict().items()}
    if whole.head.weight is whole.embed.weight:
        del tensors["head.weight"]
    if change == "missing":
        del tensors["layers.1.bias"]
    if change == "shape":
        tensors["layers.0.weight"] = torch.zeros(WIDTH, WIDTH + 1)
    paths = [directory / "model-1.safetensors", directory / "model-2.safetensors"]
    names = sorted(tensors)
    for number, path in enumerate(paths):
        save_file({name: tensors[name] for name in names[number::2]}, path)
    return paths


@given(
    size=SIZES,
    tied=st.booleans(),
    ranks=st.sampled_from([2, 3]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
)
@example(size=4, tied=True, ranks=3, dtype=torch.float32)
@example(size=1, tied=False, ranks=2, dtype=torch.float32)
def falsify_every_rank_loads_its_part(subject: Any, size: int, tied: bool, ranks: int, dtype: torch.dtype) -> None:
    """Logits equal one process's; gradients and weights equal the shards of a whole model that is divided."""
    whole = model(size, tied, dtype)
    tokens = torch.arange(size)[None]
    with scratch() as directory:
        paths = saved(whole, directory)

        def work(rank: int) -> tuple[bool, list[Any], list[Any], list[str], list[float]]:
            part: Any = skeleton(lambda: Named(Layered(size, tied).to(dtype)), weight_files(paths, "model."))
            assert part is not None and is_skeleton(part), "the files of the model are said not to fit it"
            parts = [subject.shard(part, CPU), subject.shard(Named(copy.deepcopy(whole)), CPU)]
            passed: list[list[Any]] = []
            for module in parts:
                subject.ShardedParallel(module)
                logits = module(tokens)
                logits.square().sum().backward()
                held = [(n, p.grad.to_local().tolist(), p.to_local().tolist()) for n, p in module.named_parameters()]
                passed.append([logits.tolist(), *held])
            # A view of a tensor that was read as a whole would keep all of it. FSDP2 pads to the largest part.
            large = []
            for name, parameter in part.named_parameters():
                largest = -(-len(parameter) // ranks) * parameter.numel() // len(parameter)
                if parameter.to_local().untyped_storage().nbytes() > largest * parameter.element_size():
                    large.append(name)
            inner = part.model
            return inner.head.weight is inner.embed.weight, *passed, large, inner.shift.tolist()

        label = f"{size} tokens, {'tied' if tied else 'untied'}, {ranks} ranks"
        for rank, (kept, seen, expected, large, shift) in enumerate(run_ranks(ranks, work)):
            where = f"{label}: rank {rank}"
            assert kept is tied, f"{where}: the head is {'tied' if kept else 'not tied'}"
            assert not large, f"{where} holds more than its part of {large}"
            assert_equal(f"{where}: a buffer that files hold", shift, whole.shift.tolist())
            assert_equal(f"{where}: logits", seen[0], whole(tokens).tolist())
            assert_equal(f"{where}: gradients and weights", seen[1:], expected[1:])


@given(size=SIZES, tied=st.booleans(), change=st.sampled_from(["missing", "shape"]))
def falsify_files_that_do_not_fit_are_recognized(subject: Any, size: int, tied: bool, change: str) -> None:
    with scratch() as directory:
        files = weight_files(saved(model(size, tied), directory, change))
        seen = skeleton(lambda: Layered(size, tied), files)
    assert seen is None, f"files with a tensor {change} are taken for the model's files"


@given(size=SIZES, ranks=st.sampled_from([2, 3]))
def falsify_bfloat16_weights_are_gathered(subject: Any, size: int, ranks: int) -> None:
    """Half of the bytes are gathered; each rank's shards of weights and of summed gradients stay float32."""
    whole = model(size, tied=False)

    def tokens_of(rank: int) -> Tensor:
        return (torch.arange(size + rank) % size)[None]

    def work(rank: int) -> tuple[list[int], set[torch.dtype], dict[str, Tensor]]:
        gathered = []
        for dtype in ("float32", "bfloat16"):
            module = subject.shard(copy.deepcopy(whole), CPU, dtype)
            subject.ShardedParallel(module)
            with Collectives() as collectives:
                logits = module(tokens_of(rank))
            sizes = (n * kind.itemsize for name, kind, n in collectives.calls if "allgather" in name)
            gathered.append(sum(sizes))
        logits.sum().backward()
        parameters = dict(module.named_parameters())
        kinds = {tensor.dtype for p in parameters.values() for tensor in (p, p.grad)}
        return gathered, kinds, {name: p.grad.full_tensor() for name, p in parameters.items()}

    ends = run_ranks(ranks, work)
    expected = {name: torch.zeros_like(parameter) for name, parameter in whole.named_parameters()}
    for rank in range(ranks):
        halves = {name: p.detach().bfloat16().requires_grad_() for name, p in whole.named_parameters()}
        functional_call(whole, halves, (tokens_of(rank),)).sum().backward()
        for name, half in halves.items():
            expected[name] += half.grad.float()
    for rank, (gathered, kinds, gradients) in enumerate(ends):
        where = f"{size} tokens, {ranks} ranks: rank {rank}"
        assert gathered[0] == 2 * gathered[1] > 0, f"{where} gathers {gathered} bytes in float32 and bfloat16"
        assert kinds == {torch.float32}, f"{where} has weights and gradients of {kinds}"
        for name, gradient in gradients.items():
            # float32 sums of at most three numbers, in any order.
            close = torch.allclose(gradient, expected[name], rtol=1e-6, atol=1e-7)
            assert close, f"{where}: the gradient of {name} is {gradient}; expected {expected[name]}"
