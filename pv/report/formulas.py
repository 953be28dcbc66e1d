"""The executable equations of contracts as text or LaTeX, for `pv show`."""

from collections.abc import Iterator, Sequence

from pv.contract import sharing
from pv.contract.model import Contract
from pv.equations.formats import latex, text
from pv.equations.parse import parse_equations


def render(contracts: Sequence[Contract], form: str) -> str:
    """Return every valid executable equation of the contracts. form: "text" or "latex"."""
    lines = (line for contract in contracts for line in _contract(contract, as_latex=form == "latex"))
    return "".join(f"{line}\n" for line in lines)


def _contract(contract: Contract, *, as_latex: bool) -> Iterator[str]:
    definitions, _ = parse_equations(sharing.executable(contract))
    units = {equation.name: equation.unit for equation in contract.equations}
    definitions = {name: definition for name, definition in definitions.items() if name in units}
    if definitions:
        yield f"{'% ' if as_latex else ''}{contract.id} {contract.version}  {contract.location.path}"
    for name, definition in definitions.items():
        yield ""
        if as_latex:
            yield from (f"% {name}", latex(name, definition.formula))
        else:
            yield from text(definition, units[name])
