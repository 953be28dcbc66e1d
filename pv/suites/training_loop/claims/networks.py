"""Claims about the network that the trainer makes when the suite gives it none."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Any, cast
from unittest import SkipTest

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.modules.module import register_module_forward_hook
from torch.optim import Optimizer

from pv.errors import NotClaimed
from pv.suites.logits import (
    TOLERANCE,
    Logits,
    Row,
    assert_no_later_token_is_seen,
    assert_nothing_is_drawn,
    assert_rows_are_as_alone,
    off,
    rows_of,
)
from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.claims.checks import format_causes
from pv.suites.training_loop.network import WithNetwork
from pv.suites.training_loop.numbers import close, equal_to

SAME, NEAR = 1e-5, 0.2
"""How far gradients may be apart: relative to the largest element, and in bfloat16 to the norm."""


NEAR_LOSS = 1e-4
"""How far a loss may be off, relative; networks compute it in float32."""


def own(bench: Bench) -> WithNetwork:
    return cast("WithNetwork", bench.trainer)


def awake(network: nn.Module) -> nn.Module:
    """Draw the trained parameters that are all zero, and return the network.

    A head, a gate or an adapter that begins with zeros hides from the logits, and from the gradient, all that is below.
    """
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.requires_grad and not parameter.any():
                parameter.copy_(0.1 * torch.randn(parameter.shape, generator=draw))
    return network


def forward(bench: Bench) -> Logits:
    """Return the forward of a new network. Raise SkipTest if its logits do not depend on the tokens."""
    trainer = own(bench)
    network = awake(trainer.network())

    def logits(rows: Sequence[Row]) -> Sequence[Tensor]:
        return trainer.logits(network, rows)

    rows, last = rows_of(trainer.tokens), trainer.tokens[-1]
    changed_rows = [[trainer.tokens[0] if token == last else last for token in row] for row in rows]
    if all(off(a, b) <= TOLERANCE for a, b in zip(logits(changed_rows), logits(rows), strict=True)):
        raise SkipTest("rows of other tokens have the same logits: what the network sees is not in them")
    return logits


def falsify_no_position_sees_later_tokens(bench: Bench) -> None:
    assert_no_later_token_is_seen(forward(bench), own(bench).tokens)


def falsify_padding_is_not_seen(bench: Bench) -> None:
    logits, rows = forward(bench), rows_of(own(bench).tokens)
    assert_rows_are_as_alone(logits, logits, rows, lambda: _of_padding(bench))


def _of_padding(bench: Bench) -> str:
    """Return which known mistake it is, from whether other embeddings of the padding change the logits."""
    trainer, network, rows = own(bench), own(bench).network(), rows_of(own(bench).tokens)
    changed = False

    def shift(module: nn.Module, arguments: tuple[Any, ...], output: Tensor) -> Tensor:
        nonlocal changed
        padding = _padding(arguments[0], rows) if isinstance(module, nn.Embedding) else None
        if padding is None:
            return output
        changed = True
        other = torch.linspace(-1, 1, output.shape[-1]).to(output)  # a constant would be lost in a norm
        return output + padding[..., None].to(output) * other

    before = torch.cat(list(trainer.logits(network, rows)))
    with register_module_forward_hook(shift):  # type: ignore[arg-type]  # torch declares hooks without a result
        after = torch.cat(list(trainer.logits(network, rows)))
    if not changed:
        return "padding is seen, or positions count it"
    return "padding is seen" if off(after, before) > TOLERANCE else "positions count the padding"


def _padding(ids: Tensor, rows: Sequence[Row]) -> Tensor | None:
    """Return where token ids [B, T] are padding; None if they are not those of the rows."""
    if ids.dim() != 2 or len(ids) != len(rows):
        return None
    padding = torch.ones(ids.shape, dtype=torch.bool)
    for row, actual, mask in zip(rows, ids.tolist(), padding, strict=True):
        start = next((i for i in (0, len(actual) - len(row)) if actual[i : i + len(row)] == list(row)), None)
        if start is None:
            return None
        mask[start : start + len(row)] = False
    return padding


def falsify_eval_mode_draws_nothing(bench: Bench) -> None:
    assert_nothing_is_drawn(forward(bench), rows_of(own(bench).tokens))


def falsify_frozen_part_needs_no_gradient(bench: Bench) -> None:
    trainer = own(bench)
    if not trainer.frozen:
        raise NotClaimed("no frozen parts: `frozen` of the adapter is empty")
    named = dict(trainer.network().named_parameters())
    for pattern in trainer.frozen:
        graded = [name for name in named if fnmatch(name, pattern)]
        assert graded, f"no parameter is named {pattern!r}; there are {', '.join(named)}"
        trained = [name for name in graded if named[name].requires_grad]
        assert not trained, f"{', '.join(trained)} is to be frozen, and has requires_grad True: it is trained"


OTHER = " of another network"


def _parameter_names(network: nn.Module, optimizer: Optimizer) -> list[str]:
    """Return the names of the parameters that an optimizer holds, in its order.

    A parameter that is none of the network has the name of the one with its shape and, if there is one, its values, and
    `OTHER`: the optimizer was made for another network, such as a second one of the same kind.
    """
    named = dict(network.named_parameters())
    names = {id(parameter): name for name, parameter in named.items()}

    def name_of(parameter: Tensor) -> str:
        alike = [name for name, candidate in named.items() if candidate.shape == parameter.shape]
        same = [name for name in alike if torch.equal(named[name], parameter)]
        return (same or alike or [f"a parameter of shape {[*parameter.shape]}"])[0] + OTHER

    held = (parameter for group in optimizer.param_groups for parameter in group["params"])
    return [names.get(id(parameter)) or name_of(parameter) for parameter in held]


def falsify_optimizer_holds_the_trained_parameters(bench: Bench) -> None:
    network = own(bench).network()
    held = _parameter_names(network, own(bench).network_optimizer(network))
    trained = [name for name, parameter in network.named_parameters() if parameter.requires_grad]
    foreign = {name for name in held if name.endswith(OTHER)}
    faults = {
        "is not trained: the optimizer does not hold it": [name for name in trained if name not in held],
        "is in the optimizer, which was made for that one": sorted(foreign),
        "is frozen, and the optimizer holds it": sorted(set(held) - set(trained) - foreign),
        "is in two groups of the optimizer": sorted({name for name in held if held.count(name) > 1}),
    }
    assert not any(faults.values()), "; ".join(f"{', '.join(who)} {what}" for what, who in faults.items() if who)


def falsify_norms_and_biases_do_not_decay(bench: Bench) -> None:
    network = own(bench).network()
    optimizer = own(bench).network_optimizer(network)
    names = _parameter_names(network, optimizer)
    held = [(group, parameter) for group in optimizer.param_groups for parameter in group["params"]]
    decays = [float(group.get("weight_decay", 0.0)) for group, _ in held]
    rows = zip(names, held, decays, strict=True)
    wrong = [
        f"{name} has the weight decay {decay:g}" for name, (_, parameter), decay in rows if parameter.ndim < 2 and decay
    ]
    assert not wrong, f"{', '.join(wrong)}; vectors are to have none"
    assert any(decays), "no parameter has a weight decay"
    if foreign := [name for name in names if name.endswith(OTHER)]:
        raise SkipTest(f"the optimizer holds {', '.join(foreign)}: let `network_optimizer` use the network it is given")


def falsify_order_of_the_parameters(bench: Bench) -> None:
    networks = [own(bench).network() for _ in range(8)]  # together, so that no address is used twice
    orders = [_parameter_names(network, own(bench).network_optimizer(network)) for network in networks]
    other_orders = [order for order in orders if order != orders[0]]
    assert not other_orders, (
        f"the optimizers of two equal networks hold {orders[0]} and {other_orders[0]}: "
        "a saved state is loaded by position, and goes to other parameters"
    )


@dataclass(frozen=True, slots=True)
class Backward:
    """A loss and its gradient by parameter. forwards: of modules, those in the backward included."""

    loss: Tensor
    gradient: Mapping[str, Tensor]
    forwards: int


def backward(bench: Bench, network: nn.Module, *, checkpointing: bool = False, autocast: bool = False) -> Backward:
    """Return the loss and the gradient of three rows, with the same random numbers in each call."""
    called: list[str] = []
    network.zero_grad()
    with register_module_forward_hook(lambda module, *_: called.append(type(module).__name__)):
        torch.manual_seed(1)
        rows = rows_of(own(bench).tokens)
        loss = own(bench).network_loss(network, rows, checkpointing=checkpointing, autocast=autocast)
        loss.backward()
    gradient = {
        name: parameter.grad.clone() for name, parameter in network.named_parameters() if parameter.grad is not None
    }
    return Backward(loss.detach(), gradient, len(called))


def falsify_loss_is_the_token_mean(bench: Bench) -> None:
    trainer, rows = own(bench), rows_of(own(bench).tokens)
    network = trainer.network().eval()
    with torch.no_grad():
        actual = float(trainer.network_loss(network, rows, checkpointing=False, autocast=False))
        logits = [trainer.logits(network, [row])[0].double() for row in rows]
    expected, mistakes = _losses(logits, rows)
    if not close(actual, expected, NEAR_LOSS):
        hint = "if the loss has further terms, name the claim in `not_claimed`"
        causes = format_causes(equal_to(actual, mistakes, NEAR_LOSS)) or f"; {hint}"
        raise AssertionError(f"the loss is {actual:.6g}, the token mean of the cross-entropy is {expected:.6g}{causes}")


def _losses(logits: Sequence[Tensor], rows: Sequence[Row]) -> tuple[float, dict[str, float]]:
    """Return the mean over the tokens that have one before them, and what known mistakes give. logits: [T, V]."""

    def nats(skipped: int, of: int) -> list[Tensor]:
        """Return the losses of the labels from `of` on at the positions of each row, without the last `skipped`."""
        pairs = [
            (row_logits[: len(row_logits) - skipped], row[of:]) for row_logits, row in zip(logits, rows, strict=True)
        ]
        return [
            cross_entropy(row_logits, torch.tensor(row[: len(row_logits)]), reduction="none")
            for row_logits, row in pairs
        ]

    right = nats(1, 1)
    total, places = float(torch.cat(right).sum()), len(rows) * max(map(len, rows))
    mean = total / sum(map(len, right))
    return mean, {
        "the sum over the tokens": total,
        "the mean of the rows' means": sum(float(losses.mean()) for losses in right) / len(rows),
        "the sum over the tokens / the number of rows": total / len(rows),
        "the sum over the tokens / all of them, also the first ones": total / sum(map(len, rows)),
        "the sum over the tokens / all positions, padding included": total / places,
        "the sum over the tokens / all predicted positions, padding included": total / (places - len(rows)),
        "that of labels that are not shifted": float(torch.cat(nats(0, 0)).mean()),
        "that of the input tokens as labels": float(torch.cat(nats(1, 0)).mean()),
        "that of labels that are shifted twice": float(torch.cat(nats(2, 2)).mean()),
        "in bits, not in nats": mean / math.log(2),
    }


def falsify_trained_parameters_have_gradients(bench: Bench) -> None:
    network = awake(own(bench).network())
    gradients = backward(bench, network).gradient
    trained = [name for name, parameter in network.named_parameters() if parameter.requires_grad]
    missing = [name for name in trained if name not in gradients or not gradients[name].any()]
    assert not missing, (
        f"{', '.join(missing)} is trained and has no gradient: the graph is cut above it, as by a part under no_grad"
    )


def falsify_checkpointing_changes_no_gradient(bench: Bench) -> None:
    network = own(bench).network()
    plain, again = backward(bench, network), backward(bench, network, checkpointing=True)
    if again.forwards == plain.forwards and again.gradient.keys() == plain.gradient.keys():
        raise SkipTest("network_loss(checkpointing=True) computes nothing twice: turn checkpointing on in it")
    missing = sorted(plain.gradient.keys() - again.gradient.keys())
    assert not missing, f"with activation checkpointing, {', '.join(missing)} has no gradient"
    assert plain.gradient, "no parameter has a gradient"
    apart, name = _apart(plain, again)
    assert apart < SAME, (
        f"with activation checkpointing, the gradient of {name} is off by {apart:.2g} of its largest element: other "
        "numbers are drawn when activations are computed again, or something is changed in place"
    )


def falsify_autocast_changes_little(bench: Bench) -> None:
    network = own(bench).network().eval()  # dropout draws other numbers in bfloat16
    plain, low = backward(bench, network), backward(bench, network, autocast=True)
    if torch.equal(plain.loss, low.loss):
        raise SkipTest("network_loss(autocast=True) has the loss in full precision: turn autocast on in it")
    assert low.loss.dtype == plain.loss.dtype, f"the loss is computed in {low.loss.dtype}, not in {plain.loss.dtype}"
    cast_to = {parameter.dtype for parameter in network.parameters()} - {torch.float32, torch.float64}
    assert not cast_to, f"after a backward in autocast, weights are in {', '.join(map(str, cast_to))}"
    apart = float(torch.linalg.vector_norm(_flat(low) - _flat(plain)) / torch.linalg.vector_norm(_flat(plain)))
    assert apart < NEAR, f"in bfloat16, the gradient is off by {apart:.2g} of its norm; rounding gives about 0.02"


def _flat(run: Backward) -> Tensor:
    return torch.cat([tensor.flatten().double() for _, tensor in sorted(run.gradient.items())])


def _apart(plain: Backward, other: Backward) -> tuple[float, str]:
    """Return how far gradients are apart, relative to the largest element of each, and where most."""
    return max((off(other.gradient[name], tensor), name) for name, tensor in plain.gradient.items())
