"""Claims about the modes of the modules of the trainer's own network."""

from fnmatch import fnmatch
from unittest import SkipTest

from torch import nn
from torch.nn.modules.module import register_module_forward_hook

from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.claims.networks import own


def falsify_evaluation_leaves_the_modes(bench: Bench) -> None:
    network = own(bench).network()
    before = {name: module.training for name, module in network.named_modules()}
    parts, called = set(network.modules()), []
    with register_module_forward_hook(lambda module, *_: called.append(module in parts)):
        own(bench).evaluate_network(network)
    changed = {name or "the network": module.training for name, module in network.named_modules()}
    changed = {name: mode for name, mode in changed.items() if mode != before["" if name == "the network" else name]}
    modes = ", ".join(f"{name} is in {'training' if mode else 'eval'} mode" for name, mode in changed.items())
    assert not changed, f"after an evaluation {modes}, and was not before it"
    if not any(called):
        raise SkipTest("evaluate_network(network) has no forward of the network: evaluate it as the loop does")


def falsify_frozen_parts_are_in_eval_mode(bench: Bench) -> None:
    network = own(bench).network()
    parts = [name for name, module in network.named_modules() if name and _is_frozen(bench, name, module)]
    assert parts, f"no module has frozen parameters alone; frozen are {', '.join(own(bench).frozen) or 'none'}"
    inside = {
        name: module for name, module in network.named_modules() if any(f"{name}.".startswith(f"{p}.") for p in parts)
    }
    training = [name for name, module in inside.items() if module.training]
    assert not training, (
        f"{', '.join(training)} is frozen, and in training mode: its dropout draws numbers, its statistics change"
    )


def _is_frozen(bench: Bench, name: str, module: nn.Module) -> bool:
    """Return whether a module has parameters, all of which the adapter calls frozen."""
    names = [f"{name}.{parameter}" for parameter, _ in module.named_parameters()]
    return bool(names) and all(any(fnmatch(name, pattern) for pattern in own(bench).frozen) for name in names)
