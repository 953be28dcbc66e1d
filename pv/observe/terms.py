"""Facts about the terms of a loss, from the autograd graph of the root of a backward pass.

Terms without a gradient, because they were added as numbers (`loss = ce + penalty.item()`), are found in three steps:

1. `Terms` records the losses of `torch.nn.functional`, and the numbers that the script takes from tensors.
2. When a backward pass begins, `Terms.describe` checks in the graph of its root whether the root is a sum of these
   losses, times constants, and of a number.
3. The trace gets the value of the root and all candidates for that number. A claim compares them.

Also recorded are losses without a backward pass (`Terms.dropped`), penalties from a derivative without a graph
(`Terms.constant_derivative`), sums of losses that keep their graphs (`history_of`), and the number of micro-batches by
which a library divides a loss (`accumulation_plan`).
"""

from __future__ import annotations

import functools
import sys
import weakref
from types import FrameType
from typing import TYPE_CHECKING, Any, Optional

from torch import Tensor, nn

if TYPE_CHECKING:
    from .observer import Observer
    from .trace import Event

FRAMES = 12
"""Number of frames of the call stack in which a library that accumulates gradients is searched."""
STEPS = 20
"""Number of first optimizer steps whose terms are recorded."""
MAX_TERMS = 16
"""Largest number of losses, and of numbers, between two backward passes that are recorded."""
MAX_NODES = 64
"""Largest number of nodes of the graph of a sum that are visited."""
LEAST_HISTORY = 10
"""Smallest number of steps whose losses a sum must contain to be recorded as a `history`."""
MAX_HISTORY = 500
"""Largest number of nodes of the graph of such a sum that are visited."""
MAX_FACTORS = 12
"""Largest number of constant factors of a loss that are skipped."""
MAX_HISTORIES = 20
"""Largest number of `history` events of a process."""
FACTORS = ("MulBackward", "DivBackward", "NegBackward")
"""Prefixes of the names of autograd nodes that multiply by a constant if they have one differentiable input."""
MOVES = ("SumBackward", "StackBackward", "View", "ReshapeAlias", "Squeeze", "Unsqueeze", "ToCopy")
"""Prefixes of the names of autograd nodes that leave the sum of the elements unchanged."""
METADATA_KEY, ROOT_KEY = "pv.observe", "pv.observe.root"
"""The keys of entries in the metadata of a node of a graph."""


class Mark:
    """An object in the metadata of the node of a loss. Nothing else references it, so it is freed with the node."""

    def __init__(self, owner: Terms, position: int) -> None:
        self.owner, self.position = owner, position


class ComputedLoss:
    """A loss that was computed since the last backward pass began.

    Attributes:
        key: The key of the line.
        at: "path:line" of the call.
        source: A number that identifies the inputs of the model's last call.
        mark: A weak reference to the mark of the loss's node.
        used: Whether a backward pass has computed the gradient of the loss.
        address: The address of the storage of the loss.
        shown: Whether the script has read the value of the loss as a number, such as for a log.
    """

    def __init__(self, key: int, at: str, source: object, mark: Mark, address: int) -> None:
        self.key, self.at, self.source, self.mark = key, at, source, weakref.ref(mark)
        self.address = address
        self.used = self.shown = False


class Terms:
    """The losses and numbers since the last backward pass. No node is referenced, since it would keep activations."""

    def __init__(self) -> None:
        self.losses: list[tuple[int, str, Tensor]] = []
        """Scalar losses: key, line, and value. The mark of the node has the position in this list."""
        self.numbers: list[tuple[int, str, object]] = []
        """Numbers that were taken from tensors that need a gradient: key, line, and value."""
        self.computed: list[ComputedLoss] = []
        """The same losses, with their marks."""
        self.dropped: list[Event] = []
        """The losses that got no gradient before the last call of `describe`, and whether their node was freed."""
        self.histories = 0
        """Number of `history` events."""
        self.with_gradient: set[int] = set()
        """The keys of the losses and numbers whose tensor got a gradient."""
        self.derivative = ""
        """The line of the last `autograd.grad` with respect to inputs, without a graph, since the last forward."""
        self._derived_nodes: set[Any] = set()
        """The nodes of the graph of the tensors that this call differentiated."""

    def add_loss(self, observer: Observer, key: int, at: str, loss: Tensor) -> None:
        """Record a loss if it needs a gradient.

        Args:
            observer: The observer of the process.
            key: The key of the line.
            at: "path:line" of the call.
            loss: A scalar.
        """
        if loss.grad_fn is not None and observer.steps < STEPS and len(self.losses) < MAX_TERMS:
            # The mark is freed with the node. This shows later that a graph was freed without a backward pass.
            metadata: Any = loss.grad_fn.metadata  # a property, which torch declares as a method
            metadata[METADATA_KEY] = mark = Mark(self, len(self.losses))
            self.losses.append((key, at, loss.detach()))
            last = observer._last_forward
            source = last["inputs"][-1] if last is not None and last["grad"] and last["inputs"] else 0
            self.computed.append(ComputedLoss(key, at, source, mark, loss.untyped_storage()._cdata))
            loss.register_hook(functools.partial(self._add_gradient, key))
            loss.register_hook(functools.partial(_mark_as_used, self.computed[-1]))

    def add_number(self, observer: Observer, tensor: Tensor, value: object) -> None:
        """Record that the script takes a number from a tensor that needs a gradient, as `item` does.

        Args:
            observer: The observer of the process.
            tensor: The tensor. It is recorded if it has one element.
            value: The number.
        """
        self.record_history(observer, tensor)
        if tensor.numel() == 1 and observer.steps < STEPS and len(self.numbers) < MAX_TERMS:
            at, key = observer.sites.find()
            self.numbers.append((key, at, value))
            tensor.register_hook(functools.partial(self._add_gradient, key))

    def record_history(self, observer: Observer, tensor: Tensor) -> None:
        """Record that the script reads a number from a sum of losses that keeps their graphs; see `history_of`."""
        if tensor.numel() == 1 and self.histories < MAX_HISTORIES and (count := history_of(tensor)):
            self.histories += 1
            observer.add("history", terms=count, at=observer.sites.find()[0])

    def record_read(self, tensor: Tensor) -> None:
        """Record that the script takes a number from a tensor without a gradient, such as a detached loss.

        Args:
            tensor: The tensor. A detached tensor shares the storage of the loss, which identifies the loss.
        """
        address = tensor.untyped_storage()._cdata
        for loss in self.computed:
            loss.shown = loss.shown or loss.address == address

    def add_derivative(self, observer: Observer, outputs: object, inputs: object, has_graph: bool) -> None:
        """Record a call of `torch.autograd.grad`.

        Args:
            observer: The observer of the process.
            outputs: The tensor, or the tensors, that are differentiated.
            inputs: The tensors with respect to which derivatives are computed. The call is recorded if none of them is
                a parameter.
            has_graph: Whether `create_graph` is set, so that the derivatives can be differentiated.
        """
        tensors = [inputs] if isinstance(inputs, Tensor) else inputs if isinstance(inputs, (list, tuple)) else []
        non_parameters = [x for x in tensors if isinstance(x, Tensor) and not isinstance(x, nn.Parameter)]
        if non_parameters and len(non_parameters) == len(tensors) and observer.steps < STEPS:
            self.derivative = "" if has_graph else observer.sites.find()[0]
            self._derived_nodes = _nodes_of(outputs)

    def constant_derivative(self, roots: object) -> str:
        """Return the line of the last derivative if the root of a backward pass is a sum with a constant; else "".

        The constant may be a penalty that is computed from the derivative. The tensors that a penalty differentiates
        are no part of the loss. A derivative of the loss itself, or of a part of it, is therefore left out: it may be a
        measurement, a weight of a loss, or the step to an adversarial input.

        Args:
            roots: The tensor, or the tensors, whose backward pass begins.
        """
        at, self.derivative = self.derivative, ""
        derived_nodes, self._derived_nodes = self._derived_nodes, set()
        if not at or derived_nodes & _nodes_of(roots):
            return ""
        root = _first_tensor(roots)
        waiting = [root.grad_fn] if root is not None and root.numel() == 1 else []
        # Visit the graph from the root, through sums and constant factors.
        for _ in range(MAX_NODES):
            node: Any = waiting.pop() if waiting else None
            if node is None:
                return ""
            parts = _inputs_of(node)
            if type(node).__name__.startswith(("AddBackward", "SubBackward")):
                if len(parts) < 2:  # the other operand is a constant
                    return at
                waiting += parts
            elif type(node).__name__.startswith((*MOVES, *FACTORS)) and len(parts) == 1:
                waiting += parts
        return ""

    def _add_gradient(self, key: int, gradient: Optional[Tensor]) -> None:
        """Record that the tensor of a loss or number got a gradient: a hook of this tensor."""
        if gradient is not None:
            self.with_gradient.add(key)

    def describe(self, roots: object) -> Optional[dict[str, object]]:
        """Remove the recorded losses and numbers, and return the ones that may be terms without a gradient.

        Args:
            roots: The tensor, or the tensors, whose backward pass begins.

        Returns:
            The value of the root, the keys of the losses in its sum, and the candidates ("cut"); None if the root is no
            sum of losses and a number, or if there is no candidate.
        """
        (losses, self.losses), (numbers, self.numbers) = (self.losses, []), (self.numbers, [])
        computed, self.computed, self.dropped = self.computed, [], []
        if len(computed) < MAX_TERMS:  # else the list may be incomplete
            self.dropped = [
                {
                    "key": loss.key,
                    "input": loss.source,
                    "gone": loss.mark() is None,
                    "shown": loss.shown or bool(numbers),
                }
                for loss in computed
                if not loss.used
            ]
        root = _first_tensor(roots)
        if not losses or root is None or root.numel() != 1 or root.grad_fn is None:
            return None
        positions, has_number = self._terms_of(root.grad_fn)
        if not has_number or not positions <= set(range(len(losses))):
            return None
        # A candidate is not a term of the graph, and has no gradient from another path.
        keys = {losses[position][0] for position in positions}
        candidates = [
            {"key": key, "at": at, "value": value}
            for key, at, value in [*losses, *numbers]
            if key not in keys and key not in self.with_gradient
        ]
        if not candidates:
            return None
        return {"value": root.detach().reshape(()).clone(), "losses": sorted(keys), "cut": candidates}

    def _terms_of(self, root: Any) -> tuple[set[int], bool]:
        """Return the positions of the losses in a sum, and whether a number is added to them.

        Args:
            root: The node of the sum. Any other node gives (set(), False).
        """
        waiting, has_number = [root], False
        positions: set[int] = set()
        # Visit the graph from the root, through sums and constant factors. Any other operation ends the search.
        for _ in range(MAX_NODES):
            if not waiting:
                return positions, has_number
            node = waiting.pop()
            mark = node.metadata.get(METADATA_KEY)
            if mark is not None and mark.owner is self:
                positions.add(mark.position)
                continue
            name = type(node).__name__
            parts = _inputs_of(node)
            if name.startswith(("AddBackward", "SubBackward")):
                # If an addition has one differentiable operand, the other is a number or a detached tensor.
                has_number = has_number or len(parts) < 2
            elif not name.startswith(MOVES) and not (name.startswith(FACTORS) and len(parts) == 1):
                break
            if not parts:
                break
            waiting += parts
        return set(), False


def mark_root(root: object, steps: int) -> None:
    """Store the number of ended steps at the node of a loss whose backward pass begins; see `history_of`.

    Args:
        root: The root of the backward pass, such as the loss divided by a number of micro-batches.
        steps: The number of ended steps.
    """
    if isinstance(root, Tensor) and root.grad_fn is not None:
        _without_factors(root.grad_fn).metadata[ROOT_KEY] = steps


def history_of(tensor: Tensor) -> int:
    """Return the number of steps whose losses a tensor sums, if every loss had a separate backward pass.

    Such a sum keeps the graphs of its losses in memory, although no backward pass can use them.

    Args:
        tensor: Any tensor with a graph. The result is 0 if it is no such sum, or sums the losses of fewer than
            `LEAST_HISTORY` steps, whose graphs need little memory.
    """
    node: Any = tensor.grad_fn
    terms: list[Any] = []
    for _ in range(MAX_HISTORY):
        name = type(node).__name__
        parts = _inputs_of(node)
        if name.startswith("AddBackward") and len(parts) == 2:
            terms.append(parts[1])  # in `total = total + loss`, the first operand is the sum of the earlier losses
        elif name.startswith(("StackBackward", "CatBackward")):
            terms += parts
            break
        elif not (name.startswith((*FACTORS, *MOVES, "MeanBackward", "AddBackward")) and len(parts) == 1):
            break
        node = parts[0]
    steps = {_without_factors(term).metadata.get(ROOT_KEY) for term in terms} - {None}
    return len(steps) if len(steps) >= LEAST_HISTORY else 0


def _without_factors(node: Any) -> Any:
    """Return the first node that neither multiplies by a constant nor leaves the sum of the elements unchanged."""
    for _ in range(MAX_FACTORS):
        parts = _inputs_of(node)
        if len(parts) != 1 or not type(node).__name__.startswith((*FACTORS, *MOVES)):
            break
        node = parts[0]
    return node


def _nodes_of(outputs: object) -> set[Any]:
    """Return the nodes of the graph of tensors, without parameters; about `MAX_HISTORY` of them in a large graph."""
    tensors = outputs if isinstance(outputs, (list, tuple)) else [outputs]
    waiting = [tensor.grad_fn for tensor in tensors if isinstance(tensor, Tensor) and tensor.grad_fn is not None]
    nodes = set(waiting)
    for node in waiting:  # the list grows
        if len(waiting) < MAX_HISTORY:
            # The node of a parameter, AccumulateGrad, has the attribute `variable`.
            parts = [part for part in _inputs_of(node) if part not in nodes and not hasattr(part, "variable")]
            nodes.update(parts)
            waiting += parts
    return nodes


def _inputs_of(node: Any) -> list[Any]:
    """Return the nodes of the differentiable inputs of a node."""
    return [function for function, _ in node.next_functions if function is not None]


def _first_tensor(roots: object) -> Optional[Tensor]:
    """Return the first root of a backward pass; None if there is no tensor."""
    root = roots[0] if isinstance(roots, (list, tuple)) and roots else roots
    return root if isinstance(root, Tensor) else None


def _mark_as_used(loss: ComputedLoss, gradient: Optional[Tensor]) -> None:
    loss.used = loss.used or gradient is not None


def accumulation_plan(frame: Optional[FrameType]) -> dict[str, object]:
    """Return how a library accumulates gradients, as fields of a `backward` event.

    Args:
        frame: The frame that calls the backward pass.

    Returns:
        planned: The number of micro-batches whose gradients `transformers.Trainer` or accelerate is asked to average,
            if it is more than one.
        divider: The library, accelerate or Lightning, that has divided the loss by this number.
        last_step: The number of steps after which `transformers.Trainer` ends.
    """
    state = getattr(sys.modules.get("accelerate.state"), "GradientState", None)
    plan: dict[str, object] = {}
    planned, divider = (getattr(state, "_shared_state", {}).get("plugin_kwargs") or {}).get("num_steps"), ""
    for _ in range(FRAMES):
        if frame is None:
            break
        module, name, values = str(frame.f_globals.get("__name__")), frame.f_code.co_name, frame.f_locals
        if (module, name) == ("transformers.trainer", "training_step"):
            trainer = values["self"]
            planned, plan["last_step"] = trainer.args.gradient_accumulation_steps, trainer.state.max_steps
            break
        if (module, name) == ("accelerate.accelerator", "backward") and values["self"].gradient_accumulation_steps > 1:
            divider = "accelerate"
        elif name == "backward_fn" and module.endswith("pytorch.loops.optimization.automatic"):
            divider = "lightning" if values["self"].trainer.accumulate_grad_batches > 1 else ""
        frame = frame.f_back
    if (planned or 1) > 1:
        plan["planned"] = planned
    if divider:
        plan["divider"] = divider
    return plan
