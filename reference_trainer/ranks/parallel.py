"""Data-parallel training: the operations on ranks that the training loop needs, for one process, DDP and FSDP2.

Every rank has different batches, and the whole model (DDP) or a shard of the model (FSDP2). In a window of
micro-batches:

1. One integer reduction sums the scored tokens of all ranks. Each rank divides its gradient by the sum.
2. The same reduction sums the flags of `Agreement`: actions that callbacks returned, and requests to stop. So every
   rank carries out the actions of all ranks.
3. Weights outside of layers, such as embeddings and output layers, are gathered once.
4. Gradients are reduced once, in the last micro-batch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel

from reference_trainer.distillation.features import FeatureMatching
from reference_trainer.errors import SettingError
from reference_trainer.models.loading import is_skeleton, load_shards
from reference_trainer.plan.schedule import ENDING, REQUESTS, Action

SENT = (Action.SKIP, Action.STOP, Action.LOG, Action.EVALUATE, Action.SAVE)
"""Actions in the order of their flags. Another flag, the request to stop, comes before the flags of the actions."""


class Agreement:
    """Agree on the actions that the callbacks of all ranks returned, without an additional reduction in a step.

    1. An action that a callback returns on one rank is sent with the token counts of the next step.
    2. A SKIP or STOP ends the next step before its first forward. On a GPU, reading the new flags would wait for the
       device, so each step reads the flags of the previous step, and one more step is taken.
    3. SKIP and STOP are sent until they are carried out. LOG, EVALUATE and SAVE are sent once and read once.

    A single process carries out its actions at once. Every rank calls the same methods in the same order.

    Attributes:
        pending: The actions of this rank that are not sent yet, or not carried out yet.
    """

    def __init__(self, parallel: Parallel, stop_requested: Callable[[], bool]) -> None:
        self._parallel, self._stop_requested = parallel, stop_requested
        self._alone = parallel.world_size == 1
        self.pending = Action.CONTINUE
        self._sent: _HostCopy | None = None  # the last flags, summed over ranks
        self._received: Sequence[int] = _NO_FLAGS

    def record(self, action: Action) -> Action:
        """With several ranks, add the action to `pending` and return CONTINUE. With one process, return the action."""
        if self._alone:
            return action
        self.pending |= action
        return Action.CONTINUE

    def flags(self) -> tuple[bool, ...]:
        """Return the flags to send: a request to stop this rank, then for each action of `SENT` whether it is pending.

        LOG, EVALUATE and SAVE are removed from `pending`, because they are sent once.
        """
        if self._alone:
            return (False,) * len(_NO_FLAGS)
        flags = (self._stop_requested(), *(action in self.pending for action in SENT))
        self.pending &= ENDING
        return flags

    def receive(self, flags: Tensor) -> bool:
        """Store the flags of a step, summed over ranks; return whether to skip the step because of a SKIP or STOP."""
        if self._alone:  # nothing is read from the device
            return False
        # On a GPU, read the flags of the previous step, whose copy to the host has probably ended during this step.
        previous, self._sent = self._sent, _HostCopy(flags)
        readable = self._sent if flags.device.type == "cpu" else previous
        self._received = _NO_FLAGS if readable is None else readable.take()
        return bool(self.actions & ENDING)

    @property
    def actions(self) -> Action:
        """Return the actions of all ranks that are known after the last step."""
        return _union(self._received)

    def reduce(self, action: Action, *, between_epochs: bool = False) -> Action:
        """Return the actions of all ranks so far, by an additional reduction; in a single process, return `action`.

        Args:
            action: The action of a single process.
            between_epochs: Whether no epoch is open, so that a pending SKIP is dropped.
        """
        if self._alone:
            return action
        # Add the requests of the last step, which no rank has read yet on a GPU. SKIP and STOP need not be added: they
        # are sent again, so `summed` has them.
        summed = self._parallel.sum_counts(torch.tensor(self.flags(), dtype=torch.int64)).tolist()
        unread = _NO_FLAGS if self._sent is None else self._sent.take()
        # Keep a request to stop for `is_stop_requested`, because no later step may send it again.
        self._received = (self._received[0] + summed[0] + unread[0], *self._received[1:])
        if between_epochs:
            self.pending &= ~Action.SKIP
            self._sent = None
        return _union(summed) | (_union(unread) & REQUESTS)

    def is_stop_requested(self) -> bool:
        """Return whether a rank was asked to stop, by the last flags that were read; in a single process, up to now."""
        return self._stop_requested() if self._alone else bool(self._received[0])

    def is_stop_requested_of_ranks(self) -> bool:
        """Return whether one of several ranks was asked to stop, by the last flags that were read."""
        return not self._alone and self.is_stop_requested()

    def is_stop_requested_alone(self) -> bool:
        """Return whether a run of one process was asked to stop.

        Return False on several ranks, because ranks cannot exchange requests after an error.
        """
        return self._alone and self._stop_requested()


_NO_FLAGS = (0,) * (1 + len(SENT))


def _union(numbers: Sequence[int]) -> Action:
    """Return the union of the actions of all ranks; STOP overrides SKIP. numbers: the sum of each flag over ranks."""
    union = Action.CONTINUE
    for action, ranks in zip(SENT, numbers[1:], strict=True):
        if ranks:
            union |= action
    return union & ~Action.SKIP if Action.STOP in union else union


class _HostCopy:
    """A copy of flags on the host. `take` waits until the copy is done, but not for later work on the device."""

    def __init__(self, numbers: Tensor) -> None:
        self._event = None
        if not numbers.is_cuda:
            self._copy = numbers.to("cpu", non_blocking=True, copy=True)
        else:
            # Use pinned memory: a copy to pageable memory blocks the host until all earlier work of the device is done.
            self._copy = torch.empty(numbers.shape, dtype=numbers.dtype, device="cpu", pin_memory=True)
            self._copy.copy_(numbers, non_blocking=True)
            self._event = torch.cuda.current_stream(numbers.device).record_event()

    def take(self) -> list[int]:
        """Return the flags. Clear the flags of `REQUESTS`, so that a second call does not return them again."""
        if self._event is not None:
            self._event.synchronize()
        counts: list[int] = self._copy.tolist()
        self._copy[-len(REQUESTS) :] = 0  # the last actions in `SENT` are REQUESTS
        return counts


class Parallel(Protocol):
    """The ranks of a run. Every rank calls the same methods in the same order."""

    @property
    def rank(self) -> int:
        """Return the number of this process, from 0."""
        ...

    @property
    def local_rank(self) -> int:
        """Return the number of this process on its machine, from 0."""
        ...

    @property
    def world_size(self) -> int:
        """Return the number of processes."""
        ...

    @property
    def gradient_factor(self) -> float:
        """Return the number by which the reduction divides gradients: the world size for a mean, 1 for a sum.

        The caller multiplies its gradients by this number, so that the reduction gives the sum over ranks.
        """
        ...

    def sum_counts(self, counts_K: Tensor) -> Tensor:
        """Return int64 [K] summed over ranks, on the device of the argument."""
        ...

    def sum_metrics(self, sums_K: Tensor) -> Tensor:
        """Return float64 [K] summed over ranks, on the device of the argument."""
        ...

    def window(self, *, teacher: bool = True) -> AbstractContextManager[None]:
        """Return the context of the micro-batches of an optimizer step, or of an evaluation.

        Within the context, weights outside of layers are gathered once. At its end they are freed, also after an error.

        Args:
            teacher: Whether the same applies to the weights of the teacher, which saves communication if the teacher
                runs several forwards. Otherwise each forward of the teacher gathers and frees its weights.
        """
        ...

    def micro_batch(self, *, last: bool) -> AbstractContextManager[None]:
        """Return the context of a forward and its backward. Gradients are reduced only in the `last` of a window."""
        ...


class OneProcess:
    """A run of one process: nothing is reduced."""

    rank = 0
    local_rank = 0
    world_size = 1
    gradient_factor = 1.0

    def sum_counts(self, counts_K: Tensor) -> Tensor:
        return counts_K

    def sum_metrics(self, sums_K: Tensor) -> Tensor:
        return sums_K

    def window(self, *, teacher: bool = True) -> AbstractContextManager[None]:
        return nullcontext()

    def micro_batch(self, *, last: bool) -> AbstractContextManager[None]:
        return nullcontext()


ONE_PROCESS = OneProcess()


class DataParallel:
    """The ranks of a `DistributedDataParallel` module, which averages gradients over its process group.

    Args:
        module: The DDP module of the student. The student must call this module and not the module inside it, because
            only the forward of DDP prepares the reduction.
        others: Other trained DDP modules on the same ranks, such as projections of hidden states.
        teacher: The teacher's module, sharded or not; None without a teacher.
    """

    def __init__(
        self, module: DistributedDataParallel, *others: DistributedDataParallel, teacher: nn.Module | None = None
    ) -> None:
        self._modules = (module, *others)
        self._trained_roots: list[torch.distributed.fsdp.FSDPModule] = []
        self._teacher_roots = [] if teacher is None else _roots(teacher)
        self._device = module.device
        self._group: dist.ProcessGroup | None = module.process_group
        self.rank = dist.get_rank(self._group)
        self.local_rank = int(os.environ.get("LOCAL_RANK", self.rank))
        self.world_size = dist.get_world_size(self._group)
        self.gradient_factor = float(self.world_size)

    def sum_counts(self, counts_K: Tensor) -> Tensor:
        return self._sum(counts_K)

    def sum_metrics(self, sums_K: Tensor) -> Tensor:
        return self._sum(sums_K)

    @contextmanager
    def window(self, *, teacher: bool = True) -> Iterator[None]:
        teacher_roots = self._teacher_roots if teacher else []
        roots = [*teacher_roots, *self._trained_roots]
        try:
            for root in roots:
                root.set_reshard_after_forward(False, recurse=False)
            # Gather the teacher's weights now: if a forward gathered them, `OutputLayer.record_heads` would copy them.
            # The student's weights are gathered later, by its first forward, because a gather takes twice the memory
            # of the weights.
            for root in teacher_roots:
                root.unshard()
            yield
        finally:
            for root in roots:
                root.set_reshard_after_forward(True, recurse=False)
                root.reshard()

    @contextmanager
    def micro_batch(self, *, last: bool) -> Iterator[None]:
        # Within `no_sync`, DDP accumulates gradients without a reduction; `no_sync` must enclose the forward too.
        with ExitStack() as stack:
            if not last:
                for module in self._modules:
                    stack.enter_context(module.no_sync())
            yield

    def _sum(self, values_K: Tensor) -> Tensor:
        summed_K = values_K.to(self._device, copy=True)  # NCCL reduces tensors of its device only
        dist.all_reduce(summed_K, group=self._group)
        return summed_K.to(values_K.device)


class ShardedParallel(DataParallel):
    """The ranks of a module that `shard` has divided over the default process group; gradients are summed.

    Every forward gathers the weights of layers, also in an evaluation, so all ranks must run the same number of
    forwards. The arguments are as for `DataParallel`.
    """

    def __init__(self, module: nn.Module, *others: nn.Module, teacher: nn.Module | None = None) -> None:
        trained = (module, *others)
        self._parts = [part for wrapped in trained for part in _sharded_parts(wrapped)]
        self._trained_roots = [root for wrapped in trained for root in _roots(wrapped)]
        self._teacher_roots = [] if teacher is None else _roots(teacher)
        self._group = dist.group.WORLD
        self._device = next(module.parameters()).device
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        self.local_rank = int(os.environ.get("LOCAL_RANK", self.rank))
        self.gradient_factor = 1.0
        for part in self._parts:
            part.set_gradient_divide_factor(1.0)  # not only for the roots: the setting does not reach submodules
            part.set_force_sum_reduction_for_comms(True)  # gloo supports no other reduction

    @contextmanager
    def micro_batch(self, *, last: bool) -> Iterator[None]:
        for part in self._parts:
            part.set_requires_gradient_sync(last)
        for root in self._trained_roots:
            # Free the weights in the last backward, because the reduction that follows takes memory.
            root.set_reshard_after_backward(last, recurse=False)
        yield


def shard(module: nn.Module, device: torch.device, dtype: str = "float32") -> nn.Module:
    """Divide the parameters of a module among the ranks of the default process group, by FSDP2; return the module.

    Elements of an `nn.ModuleList`, such as the layers of a decoder, are gathered one at a time. If the module is a
    `skeleton`, every rank then loads its part of the weights.

    Args:
        module: The module, which is changed in place.
        device: The device of the rank.
        dtype: The dtype of the computation. With bfloat16, float32 weights are gathered in bfloat16, half of the bytes,
            and their gradients are summed in float32.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    policy = MixedPrecisionPolicy()
    if dtype == "bfloat16":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    # Shard the layers first: `fully_shard` of the module then takes only the parameters outside of the layers.
    for layers in [child for child in module.modules() if isinstance(child, nn.ModuleList)]:
        for layer in layers:
            if list(layer.parameters()):
                fully_shard(layer, mesh=mesh, mp_policy=policy)
    # Hooks run in the order of registration, so this hook must be registered before the hooks of FSDP2.
    module.register_forward_hook(_as_tuple)
    # By default, the outermost module stays gathered from a forward to its backward. An evaluation has no backward, so
    # the parameters would stay gathered, instead of being the shards that the optimizer updates.
    fully_shard(module, mesh=mesh, reshard_after_forward=True, mp_policy=policy)
    if is_skeleton(module):
        load_shards(module, device)
    return module


class _Tensors(NamedTuple):
    """The parts of a module's output that the trainer uses."""

    logits: Tensor
    hidden_states: object


def _as_tuple(module: nn.Module, inputs: object, output: object) -> object:
    """Convert an output object with `logits` into a named tuple; return a tensor, tuple, list or dict unchanged.

    FSDP2 of torch 2.8 registers its backward hooks only on tensors in tuples, lists and mappings. For an output of
    another class, it would not gather the weights for the backward.
    """
    if isinstance(output, Tensor | tuple | list | dict) or not hasattr(output, "logits"):
        return output
    return _Tensors(output.logits, getattr(output, "hidden_states", None))


def warm_up(module: DistributedDataParallel, tokens_BT: Tensor, **options: Tensor) -> None:
    """Run one backward pass and drop its gradients, so that DDP arranges its gradient buckets before the first step.

    DDP rearranges the buckets after its first backward. With three or more ranks, the order of summation depends on the
    buckets. So without the warm-up, a resumed run would differ in the last bits from an uninterrupted run. Weights,
    buffers and random states are unchanged.

    Args:
        module: The DDP module.
        tokens_BT: The first argument of its forward, such as tokens.
        options: Other arguments of its forward.

    Raises:
        SettingError: The forward does not use some parameter: the reduction would wait for its gradient.
    """
    buffers = [(buffer, buffer.clone()) for buffer in module.buffers()]
    devices = [module.device] if module.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), torch.enable_grad():
        output = module(tokens_BT, **options)
        logits = output if isinstance(output, Tensor) else output.logits
        logits.sum().backward()
    parameters = module.module.named_parameters()
    unused = [name for name, parameter in parameters if parameter.requires_grad and parameter.grad is None]
    module.zero_grad(set_to_none=True)
    with torch.no_grad():
        for buffer, before in buffers:
            buffer.copy_(before)
    if unused:
        raise SettingError(
            f"the student's forward does not use {', '.join(unused[:5])}, so DDP cannot reduce its gradient; call "
            "requires_grad_(False) on it in make_student, or use the strategy fsdp2"
        )


def gather_tensor(tensor: Tensor) -> Tensor:
    """Return the full tensor of a sharded tensor, and any other tensor unchanged. All ranks must call this together."""
    full_tensor = getattr(tensor, "full_tensor", None)
    return tensor if full_tensor is None else full_tensor()


def _sharded_parts(module: nn.Module) -> list[torch.distributed.fsdp.FSDPModule]:
    """Return all modules to which `fully_shard` was applied, in the order of `modules()`."""
    from torch.distributed.fsdp import FSDPModule

    return [child for child in module.modules() if isinstance(child, FSDPModule)]


def _roots(module: nn.Module) -> list[torch.distributed.fsdp.FSDPModule]:
    """Return the outermost sharded modules, which have the parameters outside of the layers."""
    parts = _sharded_parts(module)
    # Every FSDPModule is an nn.Module too, which its type does not say.
    inner = {child for part in parts for child in part.modules() if child is not part}  # type: ignore[attr-defined]
    return [part for part in parts if part not in inner]


ONE_PROCESS_STRATEGY = "one process"


def strategy_of(strategy: str, world_size: int) -> str:
    """Return the name of the strategy in checkpoints: `ONE_PROCESS_STRATEGY` for one process."""
    return strategy if world_size > 1 else ONE_PROCESS_STRATEGY


def wrap_student(
    student: nn.Module,
    strategy: str,
    device: torch.device,
    wrap: Callable[[nn.Module], nn.Module],
    dtype: str = "float32",
) -> nn.Module:
    """Return the student as a DDP or FSDP2 module with the weights of rank 0. The parameters of `student` are shared.

    Args:
        student: The module.
        strategy: "ddp" or "fsdp2".
        device: The device of the rank.
        wrap: A function that wraps the module whose forward is called, for example in a module under autocast.
        dtype: The dtype of the computation, as in `shard`.
    """
    if strategy == "fsdp2":
        with torch.no_grad():  # `shard` does not broadcast: ranks would have shards of different initial weights
            for tensor in (*student.parameters(), *student.buffers()):
                if not tensor.is_meta:  # weights of a skeleton are read from files, which are equal on all ranks
                    dist.broadcast(tensor, src=0)
        return wrap(shard(student, device, dtype))
    module = DistributedDataParallel(wrap(student))
    warm_up(module, torch.tensor([[0]], device=device))
    return module


def wrap_projections(
    module: nn.Module, features: FeatureMatching, teacher: nn.Module | None = None
) -> tuple[FeatureMatching, Parallel]:
    """Wrap projections as DDP or FSDP2 modules.

    Args:
        module: The result of `wrap_student`; projections use the same strategy.
        features: The features, with projections that are not wrapped yet.
        teacher: The teacher's module, as for `DataParallel`.

    Returns:
        The features with the wrapped projections, and the ranks of all trained modules.
    """
    if not isinstance(module, DistributedDataParallel):
        device = next(module.parameters()).device
        sharded = [shard(projection, device) for projection in features.projections]
        return features, ShardedParallel(module, *sharded, teacher=teacher)
    # A projection between equal widths has no parameters, and DDP rejects a module without parameters.
    projections = [
        DistributedDataParallel(projection) if list(projection.parameters()) else projection
        for projection in features.projections
    ]
    wrapped_modules = [wrapped for wrapped in projections if isinstance(wrapped, DistributedDataParallel)]
    for wrapped in wrapped_modules:
        warm_up(wrapped, next(wrapped.parameters()))  # the input is the weight [W, S], as W hidden states of width S
    return replace(features, projections=projections), DataParallel(module, *wrapped_modules, teacher=teacher)


def gather_full(student: nn.Module, like: Callable[[], nn.Module]) -> nn.Module:
    """Return the unsharded student. All ranks must call this together.

    Args:
        student: The student, sharded or not.
        like: A function that returns a new module of the same architecture.
    """
    unsharded = like()
    has_weights = not is_skeleton(unsharded)
    full = dict[str, Tensor](student.state_dict())
    gathered: dict[int, nn.Parameter] = {}  # by the id of the shard, so that tied weights stay tied
    for name, parameter in student.named_parameters(remove_duplicate=False):
        if name not in full and has_weights:  # a weight of the frozen base of an adapter, which `like` has read
            continue
        if id(parameter) not in gathered:
            gathered[id(parameter)] = nn.Parameter(
                gather_tensor(parameter.detach()), requires_grad=parameter.requires_grad
            )
        full[name] = gathered[id(parameter)]
    if has_weights:
        unsharded.load_state_dict(full, assign=True)
    else:  # also load the frozen base of an adapter, which `Adapted.load_state_dict` would refuse
        nn.Module.load_state_dict(unsharded, dict(student.named_buffers()) | full, strict=False, assign=True)
    return unsharded
