"""The optimizer, and one step of it in phases: fetch the window, accumulate its gradient, clip, update.

`MasterAdamW` updates float32 copies of low-precision weights, because rounding to low precision loses small updates.
Every micro-batch has its own seed, so that a resumed run needs no saved state of random generators.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from reference_trainer.distillation.features import FeatureMatching
from reference_trainer.distillation.protocols import Batch, Student
from reference_trainer.distillation.universal import Frozen
from reference_trainer.errors import SettingError, first_line
from reference_trainer.plan.objective import Objective
from reference_trainer.plan.schedule import Position, Schedule, is_due, logging_interval, micro_batches
from reference_trainer.ranks.parallel import Agreement, Parallel, gather_tensor
from reference_trainer.training.state import UpdateOptions
from reference_trainer.training.window import WindowSums, kd_window

MASTER = "master"
"""Name of the optimizer state that holds the float32 copy of a parameter."""


def needs_master(parameter: Tensor) -> bool:
    """Return whether a parameter has fewer bits than float32."""
    return torch.finfo(parameter.dtype).bits < 32


class MasterAdamW(torch.optim.AdamW):
    """`AdamW` that updates a float32 copy (master) of each low-precision parameter; the parameter is the rounded copy.

    Source: Micikevicius et al. 2018, arXiv:1710.03740, section 3.1.
    """

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override]  # torch has overloads
        """Take a step. `closure` is ignored."""
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            states = [self._state_of(parameter, group) for parameter in parameters]
            # A parameter of float32 or float64 is its own master.
            masters = [state.get(MASTER, parameter) for parameter, state in zip(parameters, states, strict=True)]
            adamw(
                masters,
                [parameter.grad.to(master.dtype) for parameter, master in zip(parameters, masters, strict=True)],
                [state["exp_avg"] for state in states],
                [state["exp_avg_sq"] for state in states],
                [],
                [state["step"] for state in states],
                fused=group["fused"],
                found_inf=getattr(self, "found_inf", None),
                amsgrad=False,
                beta1=group["betas"][0],
                beta2=group["betas"][1],
                lr=group["lr"],
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                maximize=False,
            )
            for parameter, master in zip(parameters, masters, strict=True):
                if master is not parameter:
                    parameter.copy_(master)

    def _state_of(self, parameter: Tensor, group: dict[str, object]) -> dict[str, Tensor]:
        """Return the state of a parameter; create it before the first step."""
        state: dict[str, Tensor] = self.state[parameter]
        if not state:
            step_device = parameter.device if group["fused"] else "cpu"  # as in AdamW: the fused kernel reads the step
            master = parameter.detach().float() if needs_master(parameter) else parameter
            state["step"] = torch.zeros((), dtype=torch.float32, device=step_device)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(master), torch.zeros_like(master)
            if master is not parameter:
                state[MASTER] = master
        return state


def micro_batch_seed(seed: int, *, epoch: int, step: int, micro_batch: int, rank: int) -> int:
    """Return the seed of a micro-batch, from 0 to 2^63 - 1: a hash, so that similar arguments give unrelated seeds."""
    key = f"{seed}/{epoch}/{step}/{micro_batch}/{rank}".encode()
    return int.from_bytes(hashlib.sha256(key).digest()[:8]) >> 1


def seed_generators(seed: int, device: torch.device) -> None:
    """Seed the default generators of the CPU and of `device`; generators of other devices are unchanged."""
    for generator in _generators(device):
        generator.manual_seed(seed)


@contextmanager
def preserve_generators(device: torch.device) -> Iterator[None]:
    """Restore the default generators of the CPU and of `device` at the end of the block, also after an exception."""
    before = [(generator, generator.get_state()) for generator in _generators(device)]
    try:
        yield
    finally:
        for generator, state in before:
            generator.set_state(state)


def _generators(device: torch.device) -> list[torch.Generator]:
    """Return the default generators of the CPU and of `device`."""
    # The device `cuda` means the current GPU, but a generator has a device with an index, such as `cuda:0`, which is
    # unequal to `cuda`. `current_device` initialises CUDA; before, PyTorch lists no generators of GPUs.
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    generators = (torch.default_generator, *torch.cuda.default_generators)
    return [generator for generator in generators if generator.device in (torch.device("cpu"), device)]


MASTER_OPTIONS = frozenset({"weight_decay", "betas", "eps", "fused"})
"""Options of AdamW that `MasterAdamW.step` uses."""
WEIGHT_DECAY, BETAS, EPSILON = 0.01, (0.9, 0.999), 1e-8
UNDECAYED = (nn.Embedding, nn.EmbeddingBag, nn.LayerNorm, nn.RMSNorm, nn.GroupNorm)
"""Modules whose parameters have no weight decay."""


def new_optimizer(
    parameters: Iterable[nn.Parameter],
    rate: float,
    *,
    undecayed: Set[nn.Parameter] = frozenset(),
    masters: bool = False,
    kind: Callable[..., object] = torch.optim.AdamW,
    options: Mapping[str, object] = MappingProxyType({}),
    scales: Mapping[nn.Parameter, float] = MappingProxyType({}),
) -> torch.optim.Optimizer:
    """Return the optimizer of a run, by default AdamW. Source: Loshchilov and Hutter 2019, arXiv:1711.05101, alg. 2.

    On CUDA, AdamW is fused unless the options set `fused`: a fused kernel can skip an update without a wait for the
    device. Parameters are grouped by weight decay (yes or no), float32 copy (yes or no) and factor of the learning
    rate. No group is empty.

    Args:
        parameters: The parameters; those that require no gradient are left out.
        rate: The learning rate.
        undecayed: The parameters whose group has a weight decay of 0.
        masters: Update low-precision parameters in float32; only for AdamW.
        kind: The class of the optimizer.
        options: Further arguments of the class. AdamW has a `weight_decay` of 0.01 by default.
        scales: Factors of the learning rate by parameter, 1 by default. They become `lr_scale` of the groups.

    Raises:
        SettingError: `kind` is not an optimizer or rejects the options, or low-precision weights are combined with an
            optimizer that has no float32 copies.
    """
    # Group parameters by (weight decay, float32 copy, factor of the learning rate).
    members: dict[tuple[bool, bool, float], list[nn.Parameter]] = {}
    for parameter in parameters:
        if parameter.requires_grad:
            key = (parameter not in undecayed, masters and needs_master(parameter), scales.get(parameter, 1.0))
            members.setdefault(key, []).append(parameter)
    if "lr" in options:
        raise SettingError("optimizer_options: unknown option 'lr'; use --lr")
    chosen = dict(options)
    has_masters = any(has_copy for _, has_copy, _ in members)
    if isinstance(betas := chosen.get("betas"), list):  # JSON has no tuples
        chosen["betas"] = tuple(betas)
    if kind is torch.optim.AdamW:
        fused = any(parameter.is_cuda for group in members.values() for parameter in group)
        chosen = {"weight_decay": WEIGHT_DECAY, "betas": BETAS, "eps": EPSILON, "fused": fused} | chosen
        if has_masters and (ignored := sorted(chosen.keys() - MASTER_OPTIONS)):
            raise SettingError(f"optimizer_options: {ignored[0]!r} has no effect on weights in bfloat16; leave it out")
        kind = MasterAdamW if masters else kind
    elif has_masters:
        raise SettingError(
            f"conflicting settings: 'weights' is bfloat16 and 'optimizer' is {kind.__name__}; expected adamw, the "
            "only optimizer that updates float32 copies of such weights"
        )
    # Sort the groups, because the state_dict of an optimizer numbers parameters in the order of the groups.
    groups: list[dict[str, Any]] = []
    for key in sorted(members, reverse=True):
        decays, _, scale = key
        groups.append({"params": members[key]})
        if not decays:
            groups[-1]["weight_decay"] = 0.0
        if scale != 1.0:
            groups[-1]["lr_scale"] = scale
    try:
        optimizer = kind(groups, lr=rate, **chosen)
    except Exception as error:  # PyTorch's optimizers raise TypeError for unknown options, others any class
        message = f"optimizer: cannot create {kind.__name__}: {first_line(error)}; see --optimizer-options"
        raise SettingError(message) from error
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise SettingError(f"optimizer: {kind.__name__} is not a subclass of torch.optim.Optimizer")
    _set_rate(optimizer, rate)
    return optimizer


def _set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of every group: `rate` times the factor of the group."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get("lr_scale", 1.0)


def layers_of(module: nn.Module) -> list[nn.Module]:
    """Return the layers of a model in order: the elements of the longest `nn.ModuleList` that is not in another one."""
    if isinstance(module, nn.ModuleList):
        return list(module)
    return max(map(layers_of, module.children()), key=len, default=[])


def layer_scales(module: nn.Module, decay: float) -> dict[nn.Parameter, float]:
    """Return a factor of the learning rate for each parameter: decay^(L - i), where L is the number of layers + 1.

    i is 0 for embeddings (also if tied to the output layer), the number of the layer, from 1, for parameters of layers,
    and L for all others, such as the last norm and the output layer. Source: Clark et al. 2020, ELECTRA,
    arXiv:2003.10555, appendix A.

    Raises:
        SettingError: For a model without an `nn.ModuleList` of layers.
    """
    layers = layers_of(module)
    if not layers:
        raise SettingError(f"layer_decay: {type(module).__name__} has no nn.ModuleList of layers; set layer_decay to 1")
    last = len(layers) + 1
    numbers: dict[nn.Parameter, int] = {}
    for number, layer in enumerate(layers, start=1):
        numbers |= dict.fromkeys(layer.parameters(), number)
    for child in module.modules():  # after the layers, so that an embedding within a layer has number 0 too
        if isinstance(child, nn.Embedding | nn.EmbeddingBag):
            numbers |= dict.fromkeys(child.parameters(), 0)
    return {parameter: decay ** (last - numbers.get(parameter, last)) for parameter in module.parameters()}


def undecayed(*modules: nn.Module) -> set[nn.Parameter]:
    """Return the parameters without weight decay: norms, biases, and embeddings, also tied embeddings.

    These are the parameters of the classes `UNDECAYED`, and all parameters of fewer than two dimensions. A rare token
    has no gradient in most steps, so decay alone would shrink its embedding; the weight of a norm is a scale near 1,
    which decay would pull to 0.
    """
    without_decay = set[nn.Parameter]()
    for module in modules:
        for child in module.modules():
            for parameter in child.parameters(recurse=False):
                if isinstance(child, UNDECAYED) or parameter.dim() < 2:
                    without_decay.add(parameter)
    return without_decay


class StepHooks(Protocol):
    """The functions that are called within a step. Micro-batches are numbered from 0."""

    def before_forward(self, micro_batch: int) -> None: ...

    @property
    def after_backward(self) -> Callable[[int, Mapping[str, Tensor], Tensor], None] | None:
        """Called with the number of a micro-batch, its sums by name, and its count of scored tokens."""
        ...

    def before_update(self, gradient_norm: Tensor | None) -> None:
        """Called with the norm before clipping; None if it was not measured."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """The parts of an optimizer step; `loop.train` documents them."""

    teacher: Frozen
    student: Student
    batch_at: Callable[[int, int], Batch]
    optimizer: torch.optim.Optimizer | None
    schedule: Schedule
    objective: Objective
    parallel: Parallel
    features: FeatureMatching | None
    options: UpdateOptions
    agreement: Agreement

    def take_step(self, position: Position, rate: float, hooks: StepHooks) -> tuple[WindowSums, Tensor | None] | None:
        """Take the step at `position`; return its sums and, if `log_every` divides the step, the norm of its gradient.

        If `agreement` skips the step, return None and leave the weights unchanged.
        """
        # 1. Fetch all micro-batches first: their gradients are divided by the total number of their scored tokens.
        planned = self.schedule.planned_steps
        batches = [self._fetch(position, k) for k in micro_batches(self.schedule, position.epoch_step)]
        logged = is_due(position.step, self.schedule.log_every)
        if self.optimizer is not None:
            self.optimizer.zero_grad(set_to_none=True)
        deferred = self.device.type != "cpu" if self.options.deferred is None else self.options.deferred
        # A fault is deferred only if the optimizer reads `found_inf`. `GradScaler` tests the same private attribute for
        # this. The public `defaults["fused"]` is no such test: an optimizer of another library may have this key and
        # ignore `found_inf`, so that a step with infinite gradients would be taken.
        deferred = deferred and getattr(self.optimizer, "_step_supports_amp_scaling", False)

        # 2. Accumulate the gradient.
        def begin(micro_batch: int) -> None:
            hooks.before_forward(micro_batch)
            self._set_seed(position, micro_batch)

        window = kd_window(
            self.teacher,
            self.student,
            batches,
            self.objective.weights(position.step, planned),
            parallel=self.parallel,
            # Metrics are computed in every step, since a logged line is the mean over all steps since the last line.
            metrics=self.schedule.log_every > 0,
            run_teacher=self.objective.needs_teacher(*logging_interval(self.schedule, position.step), planned),
            deferred=deferred,
            features=self.features,
            before=begin,
            after=hooks.after_backward,
            flags=self.agreement.flags(),
            is_skipped=self.agreement.receive,
        )
        if window is None:
            return None
        # 3. Clip the gradient, and update the weights unless a micro-batch has a fault.
        optimizer: Any = self.optimizer
        if deferred:
            # `step` leaves the weights unchanged if this attribute is 1. `GradScaler` sets the same attribute.
            optimizer.found_inf = torch.stack([fault for fault, _ in window.faults]).amax().clamp(max=1).float()
        if self.optimizer is not None:
            _set_rate(self.optimizer, rate)
        norm = self._clip(measured=logged)
        hooks.before_update(norm)
        if self.optimizer is not None:
            self.optimizer.step()
        if deferred:
            del optimizer.found_inf  # otherwise later steps of the caller would be skipped too
        return window, norm if logged else None

    def _clip(self, *, measured: bool) -> Tensor | None:
        """Clip the gradient; return its norm before clipping if clipping needs the norm or it is `measured`."""
        if self.optimizer is None or not (measured or self.options.clip is not None):
            return None
        parameters = [
            parameter
            for group in self.optimizer.param_groups
            for parameter in group["params"]
            if parameter.grad is not None
        ]
        if self.options.clip is not None:
            return gather_tensor(nn.utils.clip_grad_norm_(parameters, self.options.clip))
        return gather_tensor(nn.utils.get_total_norm([parameter.grad for parameter in parameters]))

    def _fetch(self, position: Position, number: int) -> Batch:
        """Return a micro-batch of the epoch. Data may draw random numbers, for which the generators are seeded."""
        # Data have negative numbers, so that no seed of data is also the seed of a forward.
        self._set_seed(position, -number)
        return self.batch_at(position.epoch, number)

    def _set_seed(self, position: Position, micro_batch: int) -> None:
        if self.options.seed is None:
            return
        seed = micro_batch_seed(
            self.options.seed,
            epoch=position.epoch,
            step=position.step,
            micro_batch=micro_batch,
            rank=self.parallel.rank,
        )
        seed_generators(seed, self.device)

    def random_state(self) -> AbstractContextManager[None]:
        """Return a context for the run that, at its end, restores the generators which the steps have seeded."""
        return nullcontext() if self.options.seed is None else preserve_generators(self.device)

    @property
    def device(self) -> torch.device:
        """Return the device of the first parameter that is optimized, else the CPU."""
        groups = [] if self.optimizer is None else self.optimizer.param_groups
        return next((parameter.device for group in groups for parameter in group["params"]), torch.device("cpu"))
