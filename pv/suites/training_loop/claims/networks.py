"""Claims about the network that a trainer creates itself: its logits, modes, gradients, steps and saved state."""

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from itertools import product
from typing import cast
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
    assert_batch_changes_no_row,
    assert_no_later_token_is_seen,
    assert_seed_changes_nothing,
    relative_difference,
    sample_rows,
)
from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.claims.checks import format_causes
from pv.suites.training_loop.network import WithNetwork
from pv.suites.training_loop.oracle import close, matching_numbers

GRADIENT_TOLERANCE = 1e-5
"""Tolerance of a recomputed gradient, relative to its largest element."""
AUTOCAST_TOLERANCE = 0.2
"""Tolerance of a gradient in bfloat16, relative to its norm."""
LOSS_TOLERANCE = 1e-4
"""Relative tolerance of a loss; networks compute it in float32."""


def network_adapter(bench: Bench) -> WithNetwork:
    """Return the adapter of a bench, with the type of an adapter that provides a network."""
    return cast("WithNetwork", bench.trainer)


def redraw_zeros(network: nn.Module) -> nn.Module:
    """Replace trained parameters that are all zero by random numbers, and return the network.

    If a head, a gate or an adapter starts with zeros, logits and gradients do not show the layers below it.
    """
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.requires_grad and not parameter.any():
                parameter.copy_(0.1 * torch.randn(parameter.shape, generator=generator))
    return network


def logits_function(bench: Bench) -> Logits:
    """Return a function that computes the logits of rows with a new network.

    Raises:
        SkipTest: The logits do not depend on the tokens.
    """
    trainer = network_adapter(bench)
    network = redraw_zeros(trainer.network())

    def logits(rows: Sequence[Row]) -> Sequence[Tensor]:
        return trainer.logits(network, rows)

    rows, last = sample_rows(trainer.tokens), trainer.tokens[-1]
    changed_rows = [[trainer.tokens[0] if token == last else last for token in row] for row in rows]
    # Logits that ignore the tokens would pass every claim below.
    pairs = zip(logits(changed_rows), logits(rows), strict=True)
    if all(relative_difference(changed, unchanged) <= TOLERANCE for changed, unchanged in pairs):
        raise SkipTest("rows with other tokens have the same logits: the logits do not depend on the tokens")
    return logits


def falsify_no_position_sees_later_tokens(bench: Bench) -> None:
    assert_no_later_token_is_seen(logits_function(bench), network_adapter(bench).tokens)


def falsify_padding_is_not_seen(bench: Bench) -> None:
    logits, rows = logits_function(bench), sample_rows(network_adapter(bench).tokens)
    assert_batch_changes_no_row(logits, logits, rows, lambda: _cause_of_padding(bench))


def _cause_of_padding(bench: Bench) -> str:
    """Return the known mistake with padding that explains wrong logits."""
    # Change only the embeddings of the padding. If the logits change, attention sees the padding; otherwise, positions
    # count the padding.
    trainer = network_adapter(bench)
    network, rows = trainer.network(), sample_rows(trainer.tokens)
    changed = False

    def shift(module: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> Tensor:
        nonlocal changed
        padding = _padding_mask(arguments[0], rows) if isinstance(module, nn.Embedding) else None
        if padding is None:
            return output
        changed = True
        offset = torch.linspace(-1, 1, output.shape[-1]).to(output)  # a normalization would remove a constant offset
        return output + padding[..., None].to(output) * offset

    before = torch.cat(list(trainer.logits(network, rows)))
    with register_module_forward_hook(shift):  # type: ignore[arg-type]  # torch declares hooks without a result
        after = torch.cat(list(trainer.logits(network, rows)))
    if not changed:
        return "padding is seen, or positions count the padding"
    return "padding is seen" if relative_difference(after, before) > TOLERANCE else "positions count the padding"


def _padding_mask(ids: Tensor, rows: Sequence[Row]) -> Tensor | None:
    """Return a mask [B, T] that is True where token ids [B, T] are padding; None if the ids do not contain the rows."""
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
    assert_seed_changes_nothing(logits_function(bench), sample_rows(network_adapter(bench).tokens))


def falsify_frozen_part_needs_no_gradient(bench: Bench) -> None:
    trainer = network_adapter(bench)
    if not trainer.frozen:
        raise NotClaimed("no frozen parts: `frozen` of the adapter is empty")
    named = dict(trainer.network().named_parameters())
    for pattern in trainer.frozen:
        matching = [name for name in named if fnmatch(name, pattern)]
        assert matching, f"no parameter is named {pattern!r}; the names are {', '.join(named)}"
        trained = [name for name in matching if named[name].requires_grad]
        assert not trained, f"{', '.join(trained)} must be frozen, but has requires_grad True: it is trained"


OTHER_NETWORK = " of another network"
"""The end of the name of a parameter that an optimizer holds and the network does not have."""


def _parameter_names(network: nn.Module, optimizer: Optimizer) -> list[str]:
    """Return the names of the parameters that an optimizer holds, in the order of the optimizer.

    A parameter that the network does not have belongs to another network, for example to a second network of the same
    class. Its name is the name of a parameter of the network with the same shape, and if possible the same values,
    followed by `OTHER_NETWORK`. If there is no such parameter, the shape is the name.
    """
    named = dict(network.named_parameters())
    names = {id(parameter): name for name, parameter in named.items()}

    def name_of(parameter: Tensor) -> str:
        same_shape = [name for name, candidate in named.items() if candidate.shape == parameter.shape]
        same_values = [name for name in same_shape if torch.equal(named[name], parameter)]
        return (same_values or same_shape or [f"a parameter of shape {[*parameter.shape]}"])[0] + OTHER_NETWORK

    held = (parameter for group in optimizer.param_groups for parameter in group["params"])
    return [names.get(id(parameter)) or name_of(parameter) for parameter in held]


def falsify_optimizer_holds_the_trained_parameters(bench: Bench) -> None:
    network = network_adapter(bench).network()
    held = _parameter_names(network, network_adapter(bench).network_optimizer(network))
    trained = [name for name, parameter in network.named_parameters() if parameter.requires_grad]
    foreign = {name for name in held if name.endswith(OTHER_NETWORK)}
    faults = {
        "is not trained: the optimizer does not hold it": [name for name in trained if name not in held],
        "is in the optimizer of this network": sorted(foreign),
        "is frozen, and the optimizer holds it": sorted(set(held) - set(trained) - foreign),
        "is in two groups of the optimizer": sorted({name for name in held if held.count(name) > 1}),
    }
    _assert_no_faults(faults)


def _assert_no_faults(faults: Mapping[str, Sequence[str]], prefix: str = "") -> None:
    """Refute the claim if any parameter has a fault.

    Args:
        faults: The names of the parameters that have a fault, by the fault.
        prefix: The start of the message.
    """
    wrong = [f"{', '.join(names)} {fault}" for fault, names in faults.items() if names]
    assert not wrong, f"{prefix}{'; '.join(wrong)}"


def falsify_norms_and_biases_do_not_decay(bench: Bench) -> None:
    network = network_adapter(bench).network()
    optimizer = network_adapter(bench).network_optimizer(network)
    # Pairs of a parameter and its decay, in the order of the optimizer, which is also the order of `names`.
    names = _parameter_names(network, optimizer)
    decays = [(p, float(group.get("weight_decay", 0.0))) for group in optimizer.param_groups for p in group["params"]]
    pairs = zip(names, decays, strict=True)
    wrong = [f"{name} has the weight decay {decay:g}" for name, (weight, decay) in pairs if weight.ndim < 2 and decay]
    assert not wrong, f"{', '.join(wrong)}; vectors must not decay"
    assert any(decay for _, decay in decays), "no parameter has a weight decay"
    if foreign := [name for name in names if name.endswith(OTHER_NETWORK)]:
        raise SkipTest(f"the optimizer holds {', '.join(foreign)}: let `network_optimizer` use its argument `network`")


def falsify_order_of_the_parameters(bench: Bench) -> None:
    # Keep all networks alive: at reused addresses, an optimizer that orders parameters by address would hide the fault.
    networks = [network_adapter(bench).network() for _ in range(8)]
    orders = [_parameter_names(network, network_adapter(bench).network_optimizer(network)) for network in networks]
    other_orders = [order for order in orders if order != orders[0]]
    assert not other_orders, (
        f"the optimizers of two equal networks hold {orders[0]} and {other_orders[0]}: "
        "a saved state is loaded by position, so it goes to the wrong parameters"
    )


@dataclass(frozen=True, slots=True)
class Backward:
    """A loss, and its gradient by the name of the parameter."""

    loss: Tensor
    gradient: Mapping[str, Tensor]
    # The number of forwards of modules, including forwards that the backward recomputes.
    forwards: int


def backward(bench: Bench, network: nn.Module, *, checkpointing: bool = False, autocast: bool = False) -> Backward:
    """Return the loss of three rows and its gradient."""
    called: list[str] = []
    network.zero_grad()
    with register_module_forward_hook(lambda module, *_: called.append(type(module).__name__)):
        loss = _network_loss(bench, network, checkpointing=checkpointing, autocast=autocast)
        loss.backward()
    gradient = {
        name: parameter.grad.clone() for name, parameter in network.named_parameters() if parameter.grad is not None
    }
    return Backward(loss.detach(), gradient, len(called))


def falsify_loss_is_the_token_mean(bench: Bench) -> None:
    trainer, rows = network_adapter(bench), sample_rows(network_adapter(bench).tokens)
    network = trainer.network().eval()
    with torch.no_grad():
        actual = float(trainer.network_loss(network, rows, checkpointing=False, autocast=False))
        logits = [trainer.logits(network, [row])[0].double() for row in rows]
    expected, mistakes = _losses(logits, rows)
    if not close(actual, expected, LOSS_TOLERANCE):
        hint = "if the loss has further terms, name the claim in `not_claimed`"
        causes = format_causes(matching_numbers(actual, mistakes, LOSS_TOLERANCE)) or f"; {hint}"
        raise AssertionError(f"the loss is {actual:.6g}, the token mean of the cross-entropy is {expected:.6g}{causes}")


def _losses(logits: Sequence[Tensor], rows: Sequence[Row]) -> tuple[float, dict[str, float]]:
    """Return the mean loss in nats over all predicted tokens, and the losses of known mistakes by name.

    Args:
        logits: The logits [T, V] of each row.
        rows: The token ids of each row.
    """

    def nats(skipped: int, first: int) -> list[Tensor]:
        """Return the losses of each row without the last `skipped` positions. The label of t is token `first` + t."""
        pairs = [(scores[: len(scores) - skipped], row[first:]) for scores, row in zip(logits, rows, strict=True)]
        return [cross_entropy(s, torch.tensor(row[: len(s)]), reduction="none") for s, row in pairs]

    correct = nats(1, 1)
    total, positions = float(torch.cat(correct).sum()), len(rows) * max(map(len, rows))
    mean = total / sum(map(len, correct))
    return mean, {
        "the sum over the tokens": total,
        "the mean of the rows' means": sum(float(losses.mean()) for losses in correct) / len(rows),
        "the sum over the tokens / the number of rows": total / len(rows),
        "the sum over the tokens / all of them, also the first ones": total / sum(map(len, rows)),
        "the sum over the tokens / all positions, padding included": total / positions,
        "the sum over the tokens / all predicted positions, padding included": total / (positions - len(rows)),
        "the loss of labels that are not shifted": float(torch.cat(nats(0, 0)).mean()),
        "the loss of the input tokens as labels": float(torch.cat(nats(1, 0)).mean()),
        "the loss of labels that are shifted twice": float(torch.cat(nats(2, 2)).mean()),
        "in bits, not in nats": mean / math.log(2),
    }


def falsify_trained_parameters_have_gradients(bench: Bench) -> None:
    network = redraw_zeros(network_adapter(bench).network())
    gradients = backward(bench, network).gradient
    trained = [name for name, parameter in network.named_parameters() if parameter.requires_grad]
    missing = [name for name in trained if name not in gradients or not gradients[name].any()]
    assert not missing, (
        f"{', '.join(missing)} is trained and has no gradient: the graph is cut above it, such as by no_grad"
    )


def falsify_checkpointing_changes_no_gradient(bench: Bench) -> None:
    network = network_adapter(bench).network()
    plain, recomputed = backward(bench, network), backward(bench, network, checkpointing=True)
    # With activation checkpointing there are more forwards, since the backward runs some of them again.
    if recomputed.forwards == plain.forwards and recomputed.gradient.keys() == plain.gradient.keys():
        raise SkipTest("network_loss(checkpointing=True) runs no forward twice: turn checkpointing on in this method")
    missing = sorted(plain.gradient.keys() - recomputed.gradient.keys())
    assert not missing, f"with activation checkpointing, {', '.join(missing)} has no gradient"
    assert plain.gradient, "no parameter has a gradient"
    off, name = _largest_gradient_difference(plain, recomputed)
    assert off < GRADIENT_TOLERANCE, (
        f"with activation checkpointing, the gradient of {name} is off by {off:.2g} of its largest element: other "
        "random numbers are drawn when activations are recomputed, or a tensor is changed in place"
    )


def falsify_autocast_changes_little(bench: Bench) -> None:
    network = network_adapter(bench).network().eval()  # dropout draws other numbers in bfloat16
    plain, low = backward(bench, network), backward(bench, network, autocast=True)
    if torch.equal(plain.loss, low.loss):
        raise SkipTest("network_loss(autocast=True) returns the loss of full precision: turn autocast on in it")
    assert low.loss.dtype == plain.loss.dtype, f"the loss is computed in {low.loss.dtype}, not in {plain.loss.dtype}"
    cast_to = {parameter.dtype for parameter in network.parameters()} - {torch.float32, torch.float64}
    assert not cast_to, f"after a backward in autocast, weights are in {', '.join(map(str, cast_to))}"
    off = float(torch.linalg.vector_norm(_flat(low) - _flat(plain)) / torch.linalg.vector_norm(_flat(plain)))
    assert off < AUTOCAST_TOLERANCE, (
        f"in bfloat16, the gradient is off by {off:.2g} of its norm; rounding alone changes it by about 0.02"
    )


def _flat(run: Backward) -> Tensor:
    """Return the gradient of all parameters as one vector, in the order of their names."""
    return torch.cat([tensor.flatten().double() for _, tensor in sorted(run.gradient.items())])


def _largest_gradient_difference(plain: Backward, other: Backward) -> tuple[float, str]:
    """Return the largest relative difference of two gradients, and the name of its parameter.

    A difference is relative to the largest element of the gradient of the parameter.
    """
    return max((relative_difference(other.gradient[name], tensor), name) for name, tensor in plain.gradient.items())


def falsify_evaluation_leaves_the_modes(bench: Bench) -> None:
    network = network_adapter(bench).network()
    before = {name: module.training for name, module in network.named_modules()}
    parts, called = set(network.modules()), []
    # A hook shows whether the network was evaluated at all.
    with register_module_forward_hook(lambda module, *_: called.append(module in parts)):
        network_adapter(bench).evaluate_network(network)
    # An evaluation must restore the modes of the network and of its modules. The network itself has the name "".
    after = {name: module.training for name, module in network.named_modules()}
    changed = {name or "the network": mode for name, mode in after.items() if mode != before[name]}
    modes = ", ".join(f"{name} is in {'training' if mode else 'eval'} mode" for name, mode in changed.items())
    assert not changed, f"after an evaluation, {modes}, and was not before"
    if not any(called):
        raise SkipTest("evaluate_network(network) runs no forward of the network: evaluate it as the loop does")


def falsify_frozen_parts_are_in_eval_mode(bench: Bench) -> None:
    network = network_adapter(bench).network()
    parts = [name for name, module in network.named_modules() if name and _is_frozen(bench, name, module)]
    assert parts, (
        f"no module has only frozen parameters; `frozen` is {', '.join(network_adapter(bench).frozen) or 'empty'}"
    )
    # The modules inside a frozen part must be in eval mode, too. Their names are paths, such as `encoder.dropout`.
    training = [
        name
        for name, module in network.named_modules()
        if module.training and any(f"{name}.".startswith(f"{part}.") for part in parts)
    ]
    assert not training, (
        f"{', '.join(training)} is frozen, and in training mode: dropout is active, and running statistics change"
    )


def _is_frozen(bench: Bench, name: str, module: nn.Module) -> bool:
    """Return whether a module has parameters, and the adapter declares all of them as frozen."""
    names = [f"{name}.{parameter}" for parameter, _ in module.named_parameters()]
    return bool(names) and all(
        any(fnmatch(name, pattern) for pattern in network_adapter(bench).frozen) for name in names
    )


Pairs = list[tuple[str, str]]
"""Pairs of names of parameters."""
STEP_RATE, STEPS = 0.01, 3
"""Learning rate and number of steps. This rate replaces the rate of the optimizer, which a warm-up may set to 0."""
STEP_SIZE, DIRECTIONS = 0.01, 4
"""Step size of a numerical derivative, as a fraction of the weights, and the number of directions."""
RESTORED_TOLERANCE = 1e-3
"""Tolerance of the change by a restored optimizer, relative to the largest change; it allows for rounding."""
SMALLEST_SLOPE, SLOPE_TOLERANCE = 2e-3, 0.3
"""Smallest derivative that can be measured in float32, and the relative tolerance of derivatives."""


def falsify_tied_weights_are_one_parameter(bench: Bench) -> None:
    network = network_adapter(bench).network()
    # A tie can break in three places: at the start, in a use of the weight that is detached, or in a step.
    pairs = tied_pairs(bench, network)
    if not pairs:
        raise NotClaimed(
            "no tied weights: no embedding and linear layer begin with the same values, or `tied` is empty"
        )
    _assert_one_parameter(bench, network, pairs, "")
    if "network_loss" in bench.lacks:
        return
    for tied, _ in pairs:
        _assert_all_uses_count(bench, network, tied)
    if "network_optimizer" not in bench.lacks:
        _take_steps(bench, network)
        _assert_one_parameter(bench, network, pairs, "after a step, ")


def tied_pairs(bench: Bench, network: nn.Module) -> Pairs:
    """Return pairs of names; the two names of a pair must be one parameter.

    The adapter declares the pairs in `tied`. By default, a pair is the weights of an embedding and of a linear layer
    that are one parameter, or have the same initial values, which are not all equal.
    """
    declared = getattr(bench.trainer, "tied", None)
    if declared is not None:
        return [(a, b) for a, b in declared]
    named = _named_with_duplicates(network)
    # Without duplicates, only the first name of a shared module would be listed.
    modules = dict(network.named_modules(remove_duplicate=False))
    weights = {
        kind: [f"{name}.weight" for name, module in modules.items() if isinstance(module, kind)]
        for kind in (nn.Embedding, nn.Linear)
    }
    pairs = product(weights[nn.Embedding], weights[nn.Linear])
    return [(a, b) for a, b in pairs if _are_initially_equal(named.get(a), named.get(b))]


def _are_initially_equal(a: Tensor | None, b: Tensor | None) -> bool:
    """Return whether two weights are one parameter, or have the same values, which are not all equal."""
    if a is None or b is None:  # not a parameter, but computed, for example by a parametrization
        return False
    return a is b or (a.shape == b.shape and torch.equal(a, b) and len(a.unique()) > 1)


def _named_with_duplicates(network: nn.Module) -> dict[str, Tensor]:
    """Return the parameters by name; a shared parameter has all of its names."""
    return dict(network.named_parameters(remove_duplicate=False))


def _assert_one_parameter(bench: Bench, network: nn.Module, pairs: Pairs, when: str) -> None:
    """Assert that the names of each pair are one parameter; `when` is the start of the message."""
    named = _named_with_duplicates(network)
    unknown = [name for pair in pairs for name in pair if name not in named]
    assert not unknown, f"no parameter is named {', '.join(unknown)}; the names are {', '.join(named)}"
    declared = getattr(bench.trainer, "tied", None) is not None
    hint = "" if declared else "; if they must be separate, write `tied = ()` in the adapter"
    for a, b in pairs:
        values = "the same values" if torch.equal(named[a], named[b]) else "other values"
        cause = "a copy in place of a tied weight: each parameter is trained for one use only"
        if named[a].data_ptr() == named[b].data_ptr():
            cause = "a weight tied by `.data`: two parameters share a storage, which each step updates twice"
        assert named[a] is named[b], f"{when}{a} and {b} are two parameters with {values}; it is {cause}{hint}"


def _assert_all_uses_count(bench: Bench, network: nn.Module, name: str) -> None:
    """Assert that the gradient of a weight contains all uses of the weight.

    The gradient is compared with numerical derivatives of the loss.
    """
    network.eval()
    weight = _named_with_duplicates(network)[name]
    if not weight.requires_grad:
        return
    network.zero_grad()
    _network_loss(bench, network).backward()
    gradient = torch.zeros_like(weight) if weight.grad is None else weight.grad.clone()
    generator, scale = torch.Generator().manual_seed(1), weight.detach().std()
    directions = [torch.randn(weight.shape, generator=generator).to(weight) * scale for _ in range(DIRECTIONS)]
    # A few random directions are cheaper than a direction for each element. If a use is missing in the gradient, the
    # derivatives along nearly all of these directions are wrong.
    slopes = torch.tensor([float((gradient * direction).sum()) for direction in directions])
    expected = torch.tensor([_slope(bench, network, weight, direction) for direction in directions])
    assert expected.norm() < SMALLEST_SLOPE or (expected - slopes).norm() < SLOPE_TOLERANCE * expected.norm(), (
        f"along {DIRECTIONS} directions of {name}, the loss has the derivatives {_short(expected)}, and the gradient "
        f"gives {_short(slopes)}; it is the gradient of one use of a tied weight: another use is detached"
    )


def _short(numbers: Tensor) -> str:
    """Format numbers with three digits."""
    return f"[{', '.join(f'{number:.3g}' for number in numbers.tolist())}]"


@torch.no_grad()
def _slope(bench: Bench, network: nn.Module, weight: Tensor, direction: Tensor) -> float:
    """Return the derivative of the loss along a direction, as a difference quotient."""
    original, losses = weight.clone(), []
    # A central difference, whose error is of second order in the step size.
    for sign in (1, -1):
        weight.copy_(original + sign * STEP_SIZE * direction)
        losses.append(float(_network_loss(bench, network)))
    weight.copy_(original)
    return (losses[0] - losses[1]) / (2 * STEP_SIZE)


def _network_loss(bench: Bench, network: nn.Module, *, checkpointing: bool = False, autocast: bool = False) -> Tensor:
    """Return the loss of three rows, with the same random numbers in each call."""
    torch.manual_seed(1)
    rows = sample_rows(network_adapter(bench).tokens)
    return network_adapter(bench).network_loss(network, rows, checkpointing=checkpointing, autocast=autocast)


def _take_steps(bench: Bench, network: nn.Module, optimizer: Optimizer | None = None) -> None:
    """Take `STEPS` steps in training mode with an optimizer; None for a new optimizer of the loop."""
    network.train()
    optimizer = network_adapter(bench).network_optimizer(network) if optimizer is None else optimizer
    for group in optimizer.param_groups:
        group["lr"] = STEP_RATE
    for _ in range(STEPS):
        optimizer.zero_grad()
        _network_loss(bench, network).backward()
        optimizer.step()


def falsify_steps_change_the_trained_parameters(bench: Bench) -> None:
    network = network_adapter(bench).network()
    before = {name: parameter.detach().clone() for name, parameter in network.named_parameters()}
    _take_steps(bench, network)
    changed = {name for name, parameter in network.named_parameters() if not torch.equal(parameter, before[name])}
    trained = {name for name, parameter in network.named_parameters() if parameter.requires_grad}
    faults = {
        "has requires_grad False and changes: a forward or a step writes to it": sorted(changed - trained),
        "has requires_grad True and does not change": sorted(trained - changed),
    }
    _assert_no_faults(faults, f"after {STEPS} steps, ")


def falsify_state_dict_of_the_optimizer_is_whole(bench: Bench) -> None:
    network = network_adapter(bench).network()
    optimizer = network_adapter(bench).network_optimizer(network)
    _take_steps(bench, network, optimizer)
    saved = io.BytesIO()
    # Save to a buffer, as to a file. Without it, both optimizers could share objects, which would hide unsaved state.
    torch.save((network.state_dict(), optimizer.state_dict()), saved)
    saved.seek(0)
    weights, state = torch.load(saved, weights_only=False)
    restored = network_adapter(bench).network()
    restored.load_state_dict(weights)
    restored_optimizer = network_adapter(bench).network_optimizer(restored)
    restored_optimizer.load_state_dict(state)
    before = {name: parameter.detach().clone() for name, parameter in network.named_parameters()}
    _take_steps(bench, network, optimizer)
    _take_steps(bench, restored, restored_optimizer)
    expected = {name: parameter.detach() - before[name] for name, parameter in network.named_parameters()}
    actual = {name: parameter.detach() - before[name] for name, parameter in restored.named_parameters()}
    off, name = max(
        (relative_difference(actual[name], change), name) for name, change in expected.items() if change.any()
    )
    saved_state = "a `state`" if state["state"] else "an empty `state`"
    assert off < RESTORED_TOLERANCE, (
        f"with the restored optimizer, {STEPS} steps change {name} differently, by up to {off:.2g} of the largest "
        f"change; `state_dict()` of the optimizer has {saved_state}, and state elsewhere, as in an attribute, is lost"
    )
