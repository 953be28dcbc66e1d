"""The engines of `pv`, and engines of other packages that are registered as entry points `pv.engines`."""

from functools import cache
from typing import Any, NoReturn

from pv.contract import plugins
from pv.contract.model import Contract, Falsifier, Harness
from pv.engines.code import ResolvedCode
from pv.engines.engine import Conditions, Engine, Worker
from pv.engines.equation.engine import EquationEngine
from pv.engines.harness.engine import HarnessEngine
from pv.engines.property.engine import PropertyEngine
from pv.engines.run.engine import ObservedEngine, RunEngine
from pv.engines.suite.engine import SuiteEngine
from pv.errors import PluginError


class ProseEngine(Engine[None]):
    """The engine of falsifiers whose test is prose: they are counted but cannot be tried."""

    name = "prose"
    section = "falsifiers"
    payload_type = type(None)
    bound = False

    def takes(self, claim: Falsifier) -> bool:
        return True

    def payload(self, code: ResolvedCode, contract: Contract, claim: Falsifier, conditions: Conditions) -> NoReturn:
        raise ValueError(f"{claim.id} is not bound: its test is prose")

    def attack(self, payload: None, worker: Worker) -> dict[str, object]:
        raise TypeError("prose cannot be tried")

    def binding(self, claim: Falsifier) -> str:
        return "unbound: its test is prose"


class ProseHarnessEngine(ProseEngine):
    """The engine of harnesses whose predicate is prose: they are counted but cannot be proved."""

    name = "prose harness"
    section = "harnesses"
    proves = True

    def takes(self, claim: Falsifier) -> bool:
        return isinstance(claim, Harness) and claim.test is None


__all__ = ["engine_named", "engine_of", "engines"]

BUILT_IN: tuple[Engine[Any], ...] = (
    HarnessEngine(),
    ProseHarnessEngine(),
    ObservedEngine(),
    RunEngine(),
    SuiteEngine(),
    PropertyEngine(),
    EquationEngine(),
    ProseEngine(),
)


@cache
def engines() -> tuple[Engine[Any], ...]:
    """Return all engines in the order of preference: the first engine that takes a claim tries it.

    Engines of other packages come first, since the property engine takes every claim that has a test.

    Raises:
        PluginError: An entry point does not name a class of `Engine`, or two engines have the same name.
    """
    plugin_engines = [_from_entry_point(name) for name in plugins.declared(plugins.ENGINES)]
    names = [engine.name for engine in (*plugin_engines, *BUILT_IN)]
    for name in names:
        if names.count(name) > 1:
            raise PluginError(f"two engines are named {name!r}; rename the engine of an entry point {plugins.ENGINES}")
    return (*plugin_engines, *BUILT_IN)


def engine_named(name: str) -> Engine[Any]:
    """Return the engine with this name. A worker reads the name from its task."""
    return next(engine for engine in engines() if engine.name == name)


def engine_of(claim: Falsifier) -> Engine[Any]:
    """Return the first engine that takes a claim. The last engine, `ProseEngine`, takes every claim."""
    return next(engine for engine in engines() if engine.takes(claim))


def _from_entry_point(name: str) -> Engine[Any]:
    """Create the engine of an entry point. Raise `PluginError` if the entry point names no class of `Engine`."""
    loaded = plugins.load(plugins.ENGINES, name)
    if not (isinstance(loaded, type) and issubclass(loaded, Engine)):
        raise PluginError(f"the entry point {name!r} in {plugins.ENGINES} is {loaded!r}: expected a class of Engine")
    return loaded()
