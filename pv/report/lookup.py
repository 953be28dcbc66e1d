"""Finds a mutant or an equation of a contract by name, in constant time however many there are."""

from collections.abc import Mapping
from functools import lru_cache

from pv.contract.claims import Equation
from pv.contract.model import Contract
from pv.contract.mutants import Mutant


class _Same:
    """A contract as a key: equal to itself alone. A contract has no hash, since it holds what it read from YAML."""

    __slots__ = ("contract",)

    def __init__(self, contract: Contract) -> None:
        self.contract = contract

    def __hash__(self) -> int:
        return id(self.contract)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.contract is self.contract


def mutants(contract: Contract) -> Mapping[str, Mutant]:
    """Return the declared mutants by id."""
    return _mutants(_Same(contract))


def equations(contract: Contract) -> Mapping[str, Equation]:
    """Return the equations by name."""
    return _equations(_Same(contract))


@lru_cache(maxsize=8)
def _mutants(key: _Same) -> Mapping[str, Mutant]:
    return {mutant.id: mutant for mutant in key.contract.mutants}


@lru_cache(maxsize=8)
def _equations(key: _Same) -> Mapping[str, Equation]:
    return {equation.name: equation for equation in key.contract.equations}
