"""Claims about steps of the network that the trainer makes: tied weights, what a step changes, and what is saved."""

import io
from itertools import product

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from pv.errors import NotClaimed
from pv.suites.logits import off, rows_of
from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.claims.networks import own

Pairs = list[tuple[str, str]]
RATE, STEPS = 0.01, 3
"""Of the steps of a network, whatever rate a warm-up has at first."""
SMALL, DIRECTIONS = 0.01, 4
"""Part of a weight by which it is changed to measure a derivative, and along how many directions."""
RESTORED = 1e-3
"""How far the change by a restored optimizer may be off, relative to the largest; the rest is rounding."""
FEW, APART = 2e-3, 0.3
"""The least derivative that can be measured in float32, and how far one may be off, relative."""


def falsify_tied_weights_are_one_parameter(bench: Bench) -> None:
    network = own(bench).network()
    pairs = tied_pairs(bench, network)
    if not pairs:
        raise NotClaimed(
            "no tied weights: no embedding and linear layer begin with the same values, or `tied` is empty"
        )
    _assert_one_parameter(bench, network, pairs, "")
    if bench.missing("", ("network_loss",)):
        return
    for tied, _ in pairs:
        _assert_all_uses_count(bench, network, tied)
    if not bench.missing("", ("network_optimizer",)):
        _step(bench, network)
        _assert_one_parameter(bench, network, pairs, "after a step, ")


def tied_pairs(bench: Bench, network: nn.Module) -> Pairs:
    """Return the names of the parameters that are to be one: as the adapter says, or those that begin as one.

    An embedding and a linear layer begin as one if they have the same values, which are not all equal.
    """
    declared = getattr(bench.trainer, "tied", None)
    if declared is not None:
        return [(a, b) for a, b in declared]
    named = _named(network)
    modules = dict(network.named_modules(remove_duplicate=False))
    weights = {
        kind: [f"{name}.weight" for name, module in modules.items() if isinstance(module, kind)]
        for kind in (nn.Embedding, nn.Linear)
    }
    return [(a, b) for a, b in product(weights[nn.Embedding], weights[nn.Linear]) if _begin_as_one(named, a, b)]


def _begin_as_one(named: dict[str, Tensor], one: str, other: str) -> bool:
    if one not in named or other not in named:  # computed, as by a parametrization
        return False
    a, b = named[one], named[other]
    return a is b or (a.shape == b.shape and torch.equal(a, b) and len(a.unique()) > 1)


def _named(network: nn.Module) -> dict[str, Tensor]:
    return dict(network.named_parameters(remove_duplicate=False))


def _assert_one_parameter(bench: Bench, network: nn.Module, pairs: Pairs, when: str) -> None:
    named = _named(network)
    unknown = [name for pair in pairs for name in pair if name not in named]
    assert not unknown, f"no parameter is named {', '.join(unknown)}; there are {', '.join(named)}"
    declared = getattr(bench.trainer, "tied", None) is not None
    hint = "" if declared else "; if they are to be two, the adapter says `tied = ()`"
    for a, b in pairs:
        values = "the same values" if torch.equal(named[a], named[b]) else "other values"
        cause = "a copy in place of a tied weight, so that each is trained for its own use alone"
        if named[a].data_ptr() == named[b].data_ptr():
            cause = "a weight tied by `.data`: two parameters have one storage, which each step updates twice"
        assert named[a] is named[b], f"{when}{a} and {b} are two parameters with {values}; it is {cause}{hint}"


def _assert_all_uses_count(bench: Bench, network: nn.Module, name: str) -> None:
    """Compare the gradient of a weight with differences of the loss, in eval mode."""
    network.eval()
    weight = _named(network)[name]
    if not weight.requires_grad:
        return
    network.zero_grad()
    _loss(bench, network).backward()
    gradient = torch.zeros_like(weight) if weight.grad is None else weight.grad.clone()
    draw, scale = torch.Generator().manual_seed(1), weight.detach().std()
    directions = [torch.randn(weight.shape, generator=draw).to(weight) * scale for _ in range(DIRECTIONS)]
    slopes = torch.tensor([float((gradient * direction).sum()) for direction in directions])
    expected = torch.tensor([_slope(bench, network, weight, direction) for direction in directions])
    assert expected.norm() < FEW or (expected - slopes).norm() < APART * expected.norm(), (
        f"along {DIRECTIONS} directions, the loss changes by {_short(expected)} for {name}, and its gradient says "
        f"{_short(slopes)}; it is the gradient of one use of a tied weight: another use is detached"
    )


def _short(numbers: Tensor) -> str:
    return f"[{', '.join(f'{number:.3g}' for number in numbers.tolist())}]"


@torch.no_grad()
def _slope(bench: Bench, network: nn.Module, weight: Tensor, direction: Tensor) -> float:
    """Return the derivative of the loss along a direction, as a difference."""
    kept, losses = weight.clone(), []
    for sign in (1, -1):
        weight.copy_(kept + sign * SMALL * direction)
        losses.append(float(_loss(bench, network)))
    weight.copy_(kept)
    return (losses[0] - losses[1]) / (2 * SMALL)


def _loss(bench: Bench, network: nn.Module) -> Tensor:
    torch.manual_seed(1)
    rows = rows_of(own(bench).tokens)
    return own(bench).network_loss(network, rows, checkpointing=False, autocast=False)


def _step(bench: Bench, network: nn.Module, optimizer: Optimizer | None = None) -> None:
    """Let the loop's optimizer of the network, a new one unless it is passed, take steps."""
    network.train()
    optimizer = own(bench).network_optimizer(network) if optimizer is None else optimizer
    for group in optimizer.param_groups:
        group["lr"] = RATE
    for _ in range(STEPS):
        optimizer.zero_grad()
        _loss(bench, network).backward()
        optimizer.step()


def falsify_steps_change_the_trained_parameters(bench: Bench) -> None:
    network = own(bench).network()
    before = {name: parameter.detach().clone() for name, parameter in network.named_parameters()}
    _step(bench, network)
    changed = {name for name, parameter in network.named_parameters() if not torch.equal(parameter, before[name])}
    trained = {name for name, parameter in network.named_parameters() if parameter.requires_grad}
    faults = {
        "has requires_grad False and changes: a forward or a step writes to it": sorted(changed - trained),
        "has requires_grad True and does not change": sorted(trained - changed),
    }
    wrong = [f"{', '.join(names)} {what}" for what, names in faults.items() if names]
    assert not wrong, f"after {STEPS} steps, {'; '.join(wrong)}"


def falsify_state_dict_of_the_optimizer_is_whole(bench: Bench) -> None:
    network = own(bench).network()
    optimizer = own(bench).network_optimizer(network)
    _step(bench, network, optimizer)
    saved = io.BytesIO()
    torch.save((network.state_dict(), optimizer.state_dict()), saved)
    saved.seek(0)
    weights, state = torch.load(saved, weights_only=False)
    again = own(bench).network()
    again.load_state_dict(weights)
    restored = own(bench).network_optimizer(again)
    restored.load_state_dict(state)
    before = {name: parameter.detach().clone() for name, parameter in network.named_parameters()}
    _step(bench, network, optimizer)
    _step(bench, again, restored)
    moved = {name: (parameter.detach() - before[name], name) for name, parameter in network.named_parameters()}
    actual = {name: parameter.detach() - before[name] for name, parameter in again.named_parameters()}
    apart, name = max((off(actual[name], change), name) for change, name in moved.values() if change.any())
    inside = "an empty `state`" if not state["state"] else "a `state`"
    assert apart < RESTORED, (
        f"with the restored optimizer, {STEPS} steps change {name} by other numbers, off by {apart:.2g} of the largest "
        f"change; `state_dict()` of the optimizer has {inside}, and what else it keeps, as in an attribute, is lost"
    )
