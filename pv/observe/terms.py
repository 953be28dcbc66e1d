"""Notes of which terms the root of a backward pass is the sum, and which numbers were taken from tensors before.

A term that is added as a number, such as `loss = ce + penalty.item()`, has no gradient. Where the root is a sum of
losses of `torch.nn.functional`, times numbers, their value shows which number was added.
"""

from __future__ import annotations

import functools
import sys
import weakref
from types import FrameType
from typing import TYPE_CHECKING, Any, Optional

from torch import Tensor

if TYPE_CHECKING:
    from .observer import Observer

FRAMES = 8
"""Frames in which `Trainer.training_step` is looked for."""
STEPS = 20
"""Optimizer steps during which terms are looked at."""
MAX_TERMS, MAX_NODES = 16, 64
FACTORS = ("MulBackward", "DivBackward", "NegBackward")
MOVES = ("SumBackward", "StackBackward", "View", "ReshapeAlias", "Squeeze", "Unsqueeze", "ToCopy")
NAME = "pv.observe"
"""The key of an entry in the metadata of a node of a graph."""


class Mark:
    """Ends with the node of a loss, which is held only by that node's metadata."""

    def __init__(self, owner: Terms, position: int) -> None:
        self.owner, self.position = owner, position


class Computed:
    """A loss whose pass has not begun.

    Attributes:
        source: A number of the inputs of the model's last call.
        mark: The mark of its node (a weak reference).
        used: Whether a gradient has arrived at it.
        place: Where its value is stored.
        shown: Whether the script has taken its value as a number.
    """

    def __init__(self, key: int, at: str, source: object, mark: Mark, place: int) -> None:
        self.key, self.at, self.source, self.mark = key, at, source, weakref.ref(mark)
        self.place = place
        self.used = self.shown = False


class Terms:
    """The losses and numbers since the last backward pass. No node of a graph is kept: it would keep activations."""

    def __init__(self) -> None:
        self.losses: list[tuple[int, str, Tensor]] = []
        """Of losses that are a number: key, line, and value. Their nodes know their position here."""
        self.numbers: list[tuple[int, str, object]] = []
        """Of numbers that were taken from tensors with a gradient: key, line, and value."""
        self.computed: list[Computed] = []
        """The same losses, by their nodes."""
        self.dropped: list[dict[str, Any]] = []
        """Before the pass that has begun last: losses without a gradient, and whether their node is gone."""
        self.heard: set[int] = set()
        """Keys of losses and numbers at whose tensor a gradient has arrived."""

    def add_loss(self, observer: Observer, key: int, at: str, loss: Tensor) -> None:
        """Note a loss that needs a gradient."""
        if loss.grad_fn is not None and observer.steps < STEPS and len(self.losses) < MAX_TERMS:
            # The mark dies with the node, so a loss whose graph was freed without a pass can be recognized later.
            metadata: Any = loss.grad_fn.metadata  # a property, which torch declares as a method
            metadata[NAME] = mark = Mark(self, len(self.losses))
            self.losses.append((key, at, loss.detach()))
            last = observer._last_forward
            source = last["inputs"][-1] if last is not None and last["grad"] and last["inputs"] else 0
            self.computed.append(Computed(key, at, source, mark, loss.untyped_storage()._cdata))
            loss.register_hook(functools.partial(self._hear, key))
            loss.register_hook(functools.partial(_use, self.computed[-1]))

    def add_number(self, observer: Observer, tensor: Tensor, value: object) -> None:
        """Note that the script takes a number from a tensor that needs a gradient."""
        if tensor.numel() == 1 and observer.steps < STEPS and len(self.numbers) < MAX_TERMS:
            at, key = observer.sites.find()
            self.numbers.append((key, at, value))
            tensor.register_hook(functools.partial(self._hear, key))

    def note_look(self, tensor: Tensor) -> None:
        """Note that the script takes a number from a tensor without a gradient: a loss that was detached, perhaps."""
        place = tensor.untyped_storage()._cdata
        for loss in self.computed:
            loss.shown = loss.shown or loss.place == place

    def _hear(self, key: int, gradient: Optional[Tensor]) -> None:
        if gradient is not None:
            self.heard.add(key)

    def describe(self, roots: object) -> Optional[dict[str, object]]:
        """Return the value of the root of a backward pass that begins, and its terms; None if it is no sum of losses.

        Args:
            roots: What the pass begins with.
        """
        (losses, self.losses), (numbers, self.numbers) = (self.losses, []), (self.numbers, [])
        computed, self.computed, self.dropped = self.computed, [], []
        if len(computed) < MAX_TERMS:  # else some may be missing
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
        root = roots if isinstance(roots, Tensor) else roots[0] if isinstance(roots, (list, tuple)) and roots else None
        if not losses or not isinstance(root, Tensor) or root.numel() != 1 or root.grad_fn is None:
            return None
        leaves, with_number = self._terms(root.grad_fn)
        if not with_number or not leaves <= set(range(len(losses))):
            return None
        # A term is cut if it was computed, is no part of the sum, and no gradient arrived at it in another way.
        taken = {losses[position][0] for position in leaves}
        cut = [
            {"key": key, "at": at, "value": value}
            for key, at, value in [*losses, *numbers]
            if key not in taken and key not in self.heard
        ]
        return {"value": root.detach().reshape(()).clone(), "losses": sorted(taken), "cut": cut} if cut else None

    def _terms(self, root: Any) -> tuple[set[int], bool]:
        """Return which losses the root is a sum of, and whether a number is added; (set(), False) for anything else."""
        waiting, with_number = [root], False
        leaves: set[int] = set()
        # The graph is walked from the root through sums and constant factors; any other operation ends the search.
        for _ in range(MAX_NODES):
            if not waiting:
                return leaves, with_number
            node = waiting.pop()
            mark = node.metadata.get(NAME)
            if mark is not None and mark.owner is self:
                leaves.add(mark.position)
                continue
            name = type(node).__name__
            parts = [function for function, _ in node.next_functions if function is not None]
            if name.startswith(("AddBackward", "SubBackward")):
                # An addition with one differentiable operand has a number, or a detached tensor, as the other.
                with_number = with_number or len(parts) < 2
            elif not name.startswith(MOVES) and not (name.startswith(FACTORS) and len(parts) == 1):
                break
            if not parts:
                break
            waiting += parts
        return set(), False


def _use(loss: Computed, gradient: Optional[Tensor]) -> None:
    loss.used = loss.used or gradient is not None


def planned_micro_batches(frame: Optional[FrameType]) -> int:
    """Return of how many micro-batches `transformers.Trainer` or accelerate is asked to average the gradients.

    Args:
        frame: The frame that calls the backward pass.
    """
    for _ in range(FRAMES):
        if frame is None:
            break
        if frame.f_code.co_name == "training_step" and frame.f_globals.get("__name__") == "transformers.trainer":
            return int(frame.f_locals["self"].args.gradient_accumulation_steps)
        frame = frame.f_back
    state = getattr(sys.modules.get("accelerate.state"), "GradientState", None)
    plan = getattr(state, "_shared_state", {}).get("plugin_kwargs") or {}
    return int(plan.get("num_steps") or 1)
