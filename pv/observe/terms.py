"""Facts about the terms of a loss, from the autograd graph of the root of a backward pass.

A term that was added as a number (`loss = ce + penalty.item()`) has no gradient. Such terms are found in three steps:

1. `Terms` records the losses of `torch.nn.functional`, and the numbers that the script reads from tensors.
2. When a backward pass begins, `Terms.describe` searches the graph of the root: is the root a sum of recorded losses,
   multiplied by constants, and a number?
3. If so, the trace gets the value of the root and all recorded values that may be this number. A claim compares them.

This module also records losses without a backward pass (`Terms.dropped`), penalties from a derivative without a graph
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
"""Number of frames of the call stack that are searched for a library that accumulates gradients."""
STEPS = 20
"""Terms are recorded in this number of optimizer steps at the start."""
MAX_TERMS = 16
"""Largest number of recorded losses, and of recorded numbers, between two backward passes."""
MAX_NODES = 64
"""Largest number of visited nodes in the graph of a root."""
MIN_HISTORY = 10
"""Smallest number of steps whose losses a sum must contain to become a `history` event."""
MAX_HISTORY = 500
"""Largest number of visited nodes in the graph of a sum of losses of many steps, or of differentiated tensors."""
MAX_FACTORS = 12
"""Largest number of successive nodes that `_without_factors` skips."""
MAX_HISTORIES = 20
"""Largest number of `history` events of a process."""
FACTORS = ("MulBackward", "DivBackward", "NegBackward")
"""Prefixes of the names of autograd nodes. A node with one differentiable input multiplies this input by a constant."""
MOVES = ("SumBackward", "StackBackward", "View", "ReshapeAlias", "Squeeze", "Unsqueeze", "ToCopy")
"""Prefixes of the names of autograd nodes that leave the sum of the elements unchanged."""
METADATA_KEY, ROOT_KEY = "pv.observe", "pv.observe.root"
"""The keys in the metadata of an autograd node: for the `Mark` of a loss, and for the steps before a backward pass."""


class Mark:
    """An object in the metadata of the autograd node of a loss.

    Only the node references the mark, so the mark is freed together with the node.

    Args:
        owner: The `Terms` that recorded the loss.
        position: The position of the loss in `Terms.losses`.
    """

    def __init__(self, owner: Terms, position: int) -> None:
        self.owner, self.position = owner, position


class ComputedLoss:
    """A loss that was computed since the last backward pass began.

    Attributes:
        key: The key of the line that computed the loss.
        at: "path:line" of this line.
        source: A number that identifies the inputs of the last call of a model; 0 if unknown.
        mark: A weak reference to the `Mark` in the autograd node of the loss.
        used: Whether a backward pass has computed a gradient of the loss.
        address: The address of the storage of the loss.
        shown: Whether the script has read the value of the loss as a number, for example to log it.
    """

    def __init__(self, key: int, at: str, source: object, mark: Mark, address: int) -> None:
        self.key, self.at, self.source, self.mark = key, at, source, weakref.ref(mark)
        self.address = address
        self.used = self.shown = False


class Terms:
    """The losses and numbers since the last backward pass began.

    Apart from `_derived_nodes`, no autograd node is referenced longer than a call needs it, because a node keeps
    activations in memory.
    """

    def __init__(self) -> None:
        self.losses: list[tuple[int, str, Tensor]] = []
        """Scalar losses: key and text of the line, and value. `Mark.position` is the position in this list."""
        self.numbers: list[tuple[int, str, object]] = []
        """Numbers that the script read from tensors with a graph: key and text of the line, and value."""
        self.computed: list[ComputedLoss] = []
        """The losses of the list `losses`, with their marks."""
        self.dropped: list[Event] = []
        """Descriptions of the losses that were computed but not used before the last call of `describe`."""
        self.histories = 0
        """Number of `history` events."""
        self.with_gradient: set[int] = set()
        """The keys of the losses and numbers whose tensors got a gradient."""
        self.derivative = ""
        """The line of the last `autograd.grad` since the last forward, if it differentiates inputs without a graph."""
        self._derived_nodes: set[Any] = set()
        """The nodes of the graph of the tensors that this `autograd.grad` differentiated, until the backward pass."""

    def add_loss(self, observer: Observer, key: int, at: str, loss: Tensor) -> None:
        """Record a loss if it requires a gradient.

        Args:
            observer: The observer of the process.
            key: The key of the line that computed the loss.
            at: "path:line" of this line.
            loss: The loss, a scalar.
        """
        if loss.grad_fn is not None and observer.steps < STEPS and len(self.losses) < MAX_TERMS:
            # The mark is freed together with the node, so a graph that is freed without a backward pass is detected.
            metadata: Any = loss.grad_fn.metadata  # a property, which torch declares as a method
            metadata[METADATA_KEY] = mark = Mark(self, len(self.losses))
            self.losses.append((key, at, loss.detach()))
            last = observer._last_forward
            source = last["inputs"][-1] if last is not None and last["grad"] and last["inputs"] else 0
            self.computed.append(ComputedLoss(key, at, source, mark, loss.untyped_storage()._cdata))
            loss.register_hook(functools.partial(self._add_gradient, key))
            loss.register_hook(functools.partial(_mark_as_used, self.computed[-1]))

    def add_number(self, observer: Observer, tensor: Tensor, value: object) -> None:
        """Record that the script reads a number from a tensor with a graph, for example by `item`.

        Args:
            observer: The observer of the process.
            tensor: The tensor. Only tensors with one element are recorded.
            value: The number.
        """
        self.record_history(observer, tensor)
        if tensor.numel() == 1 and observer.steps < STEPS and len(self.numbers) < MAX_TERMS:
            at, key = observer.sites.find()
            self.numbers.append((key, at, value))
            tensor.register_hook(functools.partial(self._add_gradient, key))

    def record_history(self, observer: Observer, tensor: Tensor) -> None:
        """Record that the script reads the value of a sum of losses that keeps their graphs; see `history_of`."""
        if tensor.numel() == 1 and self.histories < MAX_HISTORIES and (count := history_of(tensor)):
            self.histories += 1
            observer.add("history", terms=count, at=observer.sites.find()[0])

    def record_read(self, tensor: Tensor) -> None:
        """Record that the script reads a number from a tensor without a graph, such as a detached loss.

        Args:
            tensor: The tensor. If it is a detached loss, it has the same storage as the loss.
        """
        address = tensor.untyped_storage()._cdata
        for loss in self.computed:
            loss.shown = loss.shown or loss.address == address

    def add_derivative(self, observer: Observer, outputs: object, inputs: object, has_graph: bool) -> None:
        """Record a call of `torch.autograd.grad`.

        Args:
            observer: The observer of the process.
            outputs: The tensor, or the tensors, that are differentiated.
            inputs: The tensors with respect to which derivatives are computed. If a parameter is among these tensors,
                the call is not recorded.
            has_graph: Whether `create_graph` is set, so that the derivatives can be differentiated again.
        """
        tensors = [inputs] if isinstance(inputs, Tensor) else inputs if isinstance(inputs, (list, tuple)) else []
        non_parameters = [x for x in tensors if isinstance(x, Tensor) and not isinstance(x, nn.Parameter)]
        if non_parameters and len(non_parameters) == len(tensors) and observer.steps < STEPS:
            self.derivative = "" if has_graph else observer.sites.find()[0]
            self._derived_nodes = _nodes_of(outputs)

    def constant_derivative(self, roots: object) -> str:
        """Return the line of the last derivative if the loss may have a penalty that is computed from this derivative.

        Such a penalty is a constant, because the derivative has no graph. So the root of the backward pass must be a
        sum of a constant and other terms. Derivatives of the loss itself, or of a part of the loss, are excluded: they
        may be a measurement, the weight of a loss, or the step to an adversarial input.

        Args:
            roots: The tensor, or the tensors, whose backward pass begins.

        Returns:
            The line, or "" if there is no such derivative.
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
                if len(parts) < 2:  # one operand is a constant
                    return at
                waiting += parts
            elif type(node).__name__.startswith((*MOVES, *FACTORS)) and len(parts) == 1:
                waiting += parts
        return ""

    def _add_gradient(self, key: int, gradient: Optional[Tensor]) -> None:
        """Record that the tensor of a loss or of a number got a gradient. This method is a hook of the tensor."""
        if gradient is not None:
            self.with_gradient.add(key)

    def describe(self, roots: object) -> Optional[dict[str, object]]:
        """Return which recorded losses and numbers may be terms without a gradient, and forget all recorded ones.

        Args:
            roots: The tensor, or the tensors, whose backward pass begins.

        Returns:
            The value of the root ("value"), the keys of the losses in the sum ("losses"), and the losses and numbers
            that may be the added number ("cut"); None if the root is not a sum of losses and a number, or if nothing
            recorded may be this number.
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
        # A candidate is not a term of the sum, and got no gradient in another way.
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
        """Return the positions of the losses in a sum, and whether the sum also has a number as a term.

        Args:
            root: The autograd node of the sum. If it is not a sum of recorded losses, the result is (set(), False).
        """
        waiting, has_number = [root], False
        positions: set[int] = set()
        # Visit the graph from the root, through sums and constant factors. Stop at any other operation.
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
                # If an addition has one differentiable operand, the other operand is a number or a detached tensor.
                has_number = has_number or len(parts) < 2
            elif not name.startswith(MOVES) and not (name.startswith(FACTORS) and len(parts) == 1):
                break
            if not parts:
                break
            waiting += parts
        return set(), False


def mark_root(root: object, steps: int) -> None:
    """Store the number of ended steps in the autograd node of a loss whose backward pass begins, for `history_of`.

    Args:
        root: The root of the backward pass: a loss, possibly multiplied by constants such as 1 / micro-batches.
        steps: The number of ended steps.
    """
    if isinstance(root, Tensor) and root.grad_fn is not None:
        _without_factors(root.grad_fn).metadata[ROOT_KEY] = steps


def history_of(tensor: Tensor) -> int:
    """Return the number of steps whose losses a tensor sums, counting only losses that had their own backward pass.

    Such a sum keeps the graphs of its losses in memory, although no backward pass can use these graphs again.

    Args:
        tensor: A tensor with a graph.

    Returns:
        The number of steps; 0 if the number is less than `MIN_HISTORY`, because the graphs then need little memory.
    """
    node: Any = tensor.grad_fn
    terms: list[Any] = []
    for _ in range(MAX_HISTORY):
        name = type(node).__name__
        parts = _inputs_of(node)
        if name.startswith("AddBackward") and len(parts) == 2:
            terms.append(parts[1])  # in `total = total + loss`, operand 0 is the sum of the earlier losses
        elif name.startswith(("StackBackward", "CatBackward")):
            terms += parts
            break
        elif not (name.startswith((*FACTORS, *MOVES, "MeanBackward", "AddBackward")) and len(parts) == 1):
            break
        node = parts[0]
    steps = {_without_factors(term).metadata.get(ROOT_KEY) for term in terms} - {None}
    return len(steps) if len(steps) >= MIN_HISTORY else 0


def _without_factors(node: Any) -> Any:
    """Return the first node, from this node towards the inputs, whose type is not in `FACTORS` or `MOVES`."""
    for _ in range(MAX_FACTORS):
        parts = _inputs_of(node)
        if len(parts) != 1 or not type(node).__name__.startswith((*FACTORS, *MOVES)):
            break
        node = parts[0]
    return node


def _nodes_of(outputs: object) -> set[Any]:
    """Return the nodes of the graph of tensors, without nodes of parameters; at most about `MAX_HISTORY` nodes."""
    tensors = outputs if isinstance(outputs, (list, tuple)) else [outputs]
    waiting = [tensor.grad_fn for tensor in tensors if isinstance(tensor, Tensor) and tensor.grad_fn is not None]
    nodes = set(waiting)
    for node in waiting:  # the loop also visits the nodes that it appends
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
    """Record that a loss got a gradient. This function is a hook of the loss."""
    loss.used = loss.used or gradient is not None


def accumulation_plan(frame: Optional[FrameType]) -> dict[str, object]:
    """Return how a library accumulates gradients, as fields of a `backward` event.

    Args:
        frame: The frame that calls the backward pass.

    Returns:
        planned: The number of micro-batches per step in the settings of `transformers.Trainer` or accelerate, if it is
            greater than 1.
        divider: The library, "accelerate" or "lightning", that has divided the loss by its number of micro-batches.
        last_step: The number of steps after which `transformers.Trainer` ends the training.
        A field that is not known is missing.
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
