"""Processes that train one model together: what the loop asks of them, for one process and for data-parallel ranks.

Every rank has its own batches, and the whole model (DDP) or a shard of it (FSDP2).

1. One integer reduction per window of micro-batches gives the scored tokens of all ranks, by which each rank divides.
2. With these counts travel the flags of `Agreement`: the actions of callbacks, and requests to stop. On every rank the
   actions of all ranks count.
3. Weights outside of layers, such as those of embeddings and output layers, are gathered once.
4. Gradients are reduced once, in the last micro-batch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel

from reference_trainer.distillation.features import FeatureMatching
from reference_trainer.errors import SettingError
from reference_trainer.models.loading import is_skeleton, load_shards
from reference_trainer.plan.schedule import ASKS, ENDS, Action

SENT = (Action.SKIP, Action.STOP, Action.LOG, Action.EVALUATE, Action.SAVE)
"""Actions in the order of their flags, which follow that of a request to stop."""


class Agreement:
    """The answers of this rank that are not carried out yet, and the flags of all ranks. One process only has its own.

    An answer that is given in a step travels with the counts of the next one, which a SKIP or STOP leaves out: before
    its first forward on the CPU. On a GPU the flags of the step before are read, which are there already, so one more
    step is taken. A SKIP or STOP is sent until it is carried out, LOG, EVALUATE and SAVE are sent once and read once.
    Every rank calls the same methods in the same order.
    """

    def __init__(self, parallel: Parallel, stop_requested: Callable[[], bool]) -> None:
        self._parallel, self._stop_requested = parallel, stop_requested
        self._alone = parallel.world_size == 1
        self._own = Action.CONTINUE
        self._sent: _Copied | None = None  # the last flags, summed over ranks
        self._known: Sequence[int] = _NONE

    def noted(self, answer: Action) -> Action:
        """Note an answer of this rank; return what is carried out at once, which is nothing on several ranks."""
        if self._alone:
            return answer
        self._own |= answer
        return Action.CONTINUE

    def flags(self) -> tuple[bool, ...]:
        """Return the flags of this rank, which are sent: asked to stop, and whether it answered each of `SENT`."""
        if self._alone:
            return (False,) * len(_NONE)
        sent, self._own = self._own, self._own & ENDS
        return self._stop_requested(), *(action in sent for action in SENT)

    def leaves_out(self, flags: Tensor) -> bool:
        """Return whether the step with these flags, summed over ranks, is left out because of an answer."""
        if self._alone:  # nothing is read from the device
            return False
        before, self._sent = self._sent, _Copied(flags)
        known = self._sent if flags.device.type == "cpu" else before
        self._known = _NONE if known is None else known.take()
        return bool(self.answer & ENDS)

    @property
    def answer(self) -> Action:
        """Return the answers of all ranks, as far as the last step has brought them."""
        return _united(self._known)

    def agreed(self, answer: Action, *, between_epochs: bool = False) -> Action:
        """Return the answers of all ranks so far, with a reduction of its own; of one process, `answer`.

        between_epochs: a SKIP is forgotten then, because it ends an open epoch only.
        """
        if self._alone:
            return answer
        summed = self._parallel.sum_counts(torch.tensor(self.flags(), dtype=torch.int64))
        late = Action.CONTINUE if self._sent is None else _united(self._sent.take()) & ASKS
        if between_epochs:
            self._own &= ~Action.SKIP
            self._sent = None
        return _united(_Copied(summed).take()) | late

    def is_leaving(self) -> bool:
        """Return whether the run was asked to stop, on any rank, before the step that has just been taken."""
        return self._stop_requested() if self._alone else bool(self._known[0])

    def is_asked_alone(self) -> bool:
        """Return whether a run of one process was asked to stop. Several ranks cannot agree on it after an error."""
        return self._alone and self._stop_requested()


_NONE = (0,) * (1 + len(SENT))


def _united(numbers: Sequence[int]) -> Action:
    """Return the actions of all ranks, from the number of ranks that set each flag; STOP overrides SKIP."""
    united = Action.CONTINUE
    for action, ranks in zip(SENT, numbers[1:], strict=True):
        united |= action if ranks else Action.CONTINUE
    return united & ~Action.SKIP if Action.STOP in united else united


class _Copied:
    """A copy of flags on the host, without a wait for what follows them on the device."""

    def __init__(self, numbers: Tensor) -> None:
        self._event = None
        if not numbers.is_cuda:
            self._copy = numbers.to("cpu", non_blocking=True, copy=True)
        else:
            # Pinned memory: a copy to pageable memory returns once it is done, so it waits for all that precedes it.
            self._copy = torch.empty(numbers.shape, dtype=numbers.dtype, device="cpu", pin_memory=True)
            self._copy.copy_(numbers, non_blocking=True)
            self._event = torch.cuda.current_stream(numbers.device).record_event()

    def take(self) -> list[int]:
        """Return the flags; those of `ASKS` once only."""
        if self._event is not None:
            self._event.synchronize()
        counts: list[int] = self._copy.tolist()
        self._copy[-len(ASKS) :] = 0
        return counts


class Parallel(Protocol):
    """The ranks of a run. Every rank calls the same methods in the same order.

    gradient_factor: what the reduction of gradients divides them by; a gradient is multiplied by it beforehand, so that
    the reduction gives the sum over ranks.
    """

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
    def gradient_factor(self) -> float: ...

    def sum_counts(self, counts_K: Tensor) -> Tensor:
        """Return int64 [K] summed over ranks, on the device of the argument."""
        ...

    def sum_metrics(self, sums_K: Tensor) -> Tensor:
        """Return float64 [K] summed over ranks, on the device of the argument."""
        ...

    def window(self, *, teacher: bool = True) -> AbstractContextManager[None]:
        """Return the context of the micro-batches of an optimizer step, or of an evaluation.

        Weights outside of layers are gathered once in it, and freed at its end, also after an error. teacher: whether
        also those of the teacher, which is run more than once; otherwise its forward gathers and frees them.
        """
        ...

    def micro_batch(self, *, last: bool) -> AbstractContextManager[None]:
        """Return the context of a forward and its backward; gradients are reduced in the `last` of a window only."""
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

    The student of the run calls this module, not the one inside it: only its forward prepares the reduction. others:
    further such modules of the same ranks, such as projections of hidden states. teacher: a module that `shard` may
    have divided.
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
            # `OutputLayer.record_heads` copies weights that a forward gathers. The student's are gathered by its first
            # forward: a gather takes memory for twice its weights, so the teacher's comes without them.
            for root in teacher_roots:
                root.unshard()
            yield
        finally:
            for root in roots:
                root.set_reshard_after_forward(True, recurse=False)
                root.reshard()

    @contextmanager
    def micro_batch(self, *, last: bool) -> Iterator[None]:
        with ExitStack() as stack:
            for module in () if last else self._modules:
                stack.enter_context(module.no_sync())
            yield

    def _sum(self, values_K: Tensor) -> Tensor:
        summed_K = values_K.to(self._device, copy=True)  # NCCL reduces tensors of its device only
        dist.all_reduce(summed_K, group=self._group)
        return summed_K.to(values_K.device)


class ShardedParallel(DataParallel):
    """The ranks of a module that `shard` has divided among the default process group; gradients are summed.

    Every forward, also one of an evaluation, gathers the weights of layers: all ranks make equally many. others and
    teacher: as of `DataParallel`.
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
            part.set_gradient_divide_factor(1.0)  # each part has its own: on the root alone, other gradients stay means
            part.set_force_sum_reduction_for_comms(True)  # gloo has no other

    @contextmanager
    def micro_batch(self, *, last: bool) -> Iterator[None]:
        for part in self._parts:
            part.set_requires_gradient_sync(last)
        for root in self._trained_roots:
            # The last backward frees the weights before it reduces the gradients, which takes memory.
            root.set_reshard_after_backward(last, recurse=False)
        yield


def shard(module: nn.Module, device: torch.device, dtype: str = "float32") -> nn.Module:
    """Divide the parameters of a module among the ranks of the default process group, by FSDP2; return the module.

    Each element of an `nn.ModuleList`, such as the layers of a decoder, is gathered by itself. Of a `skeleton`, every
    rank then loads its part. dtype: of the computation; with bfloat16, float32 weights are gathered in bfloat16, half
    of the bytes, and their gradients are summed in float32.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh, policy = init_device_mesh(device.type, (dist.get_world_size(),)), MixedPrecisionPolicy()
    if dtype == "bfloat16":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    lists = [child for child in module.modules() if isinstance(child, nn.ModuleList)]
    for part in (part for blocks in lists for part in blocks if any(True for _ in part.parameters())):
        fully_shard(part, mesh=mesh, mp_policy=policy)
    module.register_forward_hook(_as_tuple)  # before that of FSDP2, which calls them in the order of registration
    # By default the outermost stays gathered after a forward until a backward, so that after an evaluation its
    # parameters are not those of the optimizer.
    fully_shard(module, mesh=mesh, reshard_after_forward=True, mp_policy=policy)
    if is_skeleton(module):
        load_shards(module, device)
    return module


class _Tensors(NamedTuple):
    """What is read of a module's output."""

    logits: Tensor
    hidden_states: Any


def _as_tuple(module: nn.Module, inputs: object, output: object) -> object:
    """Return an output of a class of its own as a tuple: FSDP2 of torch 2.8 gathers no weights for a backward from it.

    It looks for tensors in tuples, lists and mappings alone.
    """
    if isinstance(output, Tensor | tuple | list | dict) or not hasattr(output, "logits"):
        return output
    return _Tensors(output.logits, getattr(output, "hidden_states", None))


def warm_up(module: DistributedDataParallel, tokens_BT: Tensor, **options: Tensor) -> None:
    """Let the module arrange its gradients for the reduction, by one backward pass whose gradients are dropped.

    It does so after its first one, and with three ranks or more the order of their sums depends on it: without this, a
    run that resumes differs in the last bits from one that went on. Weights, buffers and random numbers stay.

    Raise `SettingError` for a parameter that the forward does not use: the reduction would wait for its gradient.
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


def whole(tensor: Tensor) -> Tensor:
    """Return the whole of a tensor that is divided among ranks, all of which call this; any other as it is."""
    full = getattr(tensor, "full_tensor", None)
    return tensor if full is None else full()


def _sharded_parts(module: nn.Module) -> list[torch.distributed.fsdp.FSDPModule]:
    from torch.distributed.fsdp import FSDPModule

    return [child for child in module.modules() if isinstance(child, FSDPModule)]


def _roots(module: nn.Module) -> list[torch.distributed.fsdp.FSDPModule]:
    """Return the outermost sharded parts, each with the parameters that are not in an element of an `nn.ModuleList`."""
    parts = _sharded_parts(module)
    # Every FSDPModule is an nn.Module too, which its type does not say.
    inner = {child for part in parts for child in part.modules() if child is not part}  # type: ignore[attr-defined]
    return [part for part in parts if part not in inner]


ONE_PROCESS_STRATEGY = "one process"


def strategy_of(strategy: str, world_size: int) -> str:
    """Return the strategy as checkpoints name it."""
    return strategy if world_size > 1 else ONE_PROCESS_STRATEGY


def wrap_student(
    student: nn.Module,
    strategy: str,
    device: torch.device,
    wrap: Callable[[nn.Module], nn.Module],
    dtype: str = "float32",
) -> nn.Module:
    """Return the module that the ranks train: one with the weights of rank 0. The parameters stay those of `student`.

    wrap: makes the module whose forward is called, such as one under autocast. dtype: as of `shard`.
    """
    if strategy == "fsdp2":
        with torch.no_grad():  # each rank would keep its own part of another student
            for tensor in (*student.parameters(), *student.buffers()):
                if not tensor.is_meta:  # those of a skeleton are read from files that all ranks have
                    dist.broadcast(tensor, src=0)
        return wrap(shard(student, device, dtype))
    module = DistributedDataParallel(wrap(student))
    warm_up(module, torch.tensor([[0]], device=device))
    return module


def wrap_projections(
    module: nn.Module, features: FeatureMatching, teacher: nn.Module | None = None
) -> tuple[FeatureMatching, Parallel]:
    """Return the matching with projections whose gradients are reduced over the ranks, and what the loop asks of them.

    module: what `wrap_student` returned; projections with parameters are spread in the same way. teacher: as of
    `DataParallel`.
    """
    if not isinstance(module, DistributedDataParallel):
        device = next(module.parameters()).device
        sharded = [shard(projection, device) for projection in features.projections]
        return features, ShardedParallel(module, *sharded, teacher=teacher)
    # One between equal widths has no parameters.
    projections = [
        DistributedDataParallel(projection) if list(projection.parameters()) else projection
        for projection in features.projections
    ]
    others = [wrapped for wrapped in projections if isinstance(wrapped, DistributedDataParallel)]
    for wrapped in others:
        warm_up(wrapped, next(wrapped.parameters()))  # its own weights [W, S] are as good as states
    return replace(features, projections=projections), DataParallel(module, *others, teacher=teacher)


def gather_full(student: nn.Module, like: Callable[[], nn.Module]) -> nn.Module:
    """Return a sharded student as one process has it. All ranks call this; like: makes a module of its kind."""
    alone, full = like(), dict[str, Tensor](student.state_dict())
    empty = is_skeleton(alone)
    gathered: dict[int, nn.Parameter] = {}
    for name, parameter in student.named_parameters(remove_duplicate=False):
        if name not in full and not empty:  # the frozen base of an adapter, which `like` reads
            continue
        if id(parameter) not in gathered:  # a tied weight stays tied
            gathered[id(parameter)] = nn.Parameter(whole(parameter.detach()), requires_grad=parameter.requires_grad)
        full[name] = gathered[id(parameter)]
    if empty:  # the frozen base of an adapter, too, which its `load_state_dict` refuses
        nn.Module.load_state_dict(alone, dict(student.named_buffers()) | full, strict=False, assign=True)
    else:
        alone.load_state_dict(full, assign=True)
    return alone
