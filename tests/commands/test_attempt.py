"""An attempt is named by its falsifier or run, and by its mutant."""

from pv.commands.attempt import Attempt, Known
from pv.contract.claims import Run
from pv.contract.model import Contract
from pv.contract.names import Binding
from tests.results.handmade import HERE, contract, falsifier

CONTRACT: Contract = contract(falsifier())


def test_attempt_is_named_by_its_falsifier_and_mutant() -> None:
    clean = Attempt(contract=CONTRACT, device="cpu", falsifier=falsifier())
    assert str(clean) == "F"
    assert str(Attempt(contract=CONTRACT, device="cpu", falsifier=falsifier(), mutant=CONTRACT.mutants[0])) == "F / m"


def test_execution_of_a_run_is_named_by_the_run() -> None:
    run = Run(name="whole", callable=Binding("runs.py", "count"), location=HERE)
    assert str(Attempt(contract=CONTRACT, device="cpu", run=run)) == "run whole"


def test_knowledge_of_two_contracts_is_apart() -> None:
    one, other = Known(), Known()
    one.drawn["F"] = 3
    assert (one.drawn, other.drawn) == ({"F": 3}, {})
