"""Equation mutants are killed by the results of the code, unless they are equivalent."""

import pytest
import torch

from pv.equations.mutants import mutants
from pv.equations.parse import parse_equations
from tests.equations.conftest import formulas as formulas
from tests.equations.conftest import implementations as implementations
from tests.equations.conftest import tried as tried

EQUIVALENT = {
    # No outcome has zero mass, so `where=` leaves nothing out.
    "kl": {
        "sum(exp(log_p) * (log_p - log_q), V) for sum(exp(log_p) * (log_p - log_q), V, where=log_p > -inf)",
        "log_p >= -inf for log_p > -inf",
        "log_q for log_p",
    },
    "topk_kl_with_tail": {"tail_p >= -inf for tail_p > -inf", "1 for 0", "-1 for 0", "tail_q for tail_p"},
    # Both branches meet there.
    "huber": {"abs(a) < delta for abs(a) <= delta"},
}
"""Equivalent mutants on the drawn domain, by equation, each group with the reason."""


def found(equations, name):
    parsed, problems = parse_equations(equations)
    assert problems == []
    callees = {each: equation.callee for each, equation in parsed.items()}
    return list(mutants(name, callees, parsed[name].results))


def said(mutant):
    return mutant["equation"], f"{mutant['after']} for {mutant['before']}"


@pytest.mark.parametrize("name", ["kd_loss", "topk_kl_with_tail", "huber"])
def test_every_mutant_is_killed_unless_it_is_equivalent(name, formulas, implementations, tried) -> None:
    record = tried(formulas, name, implementations, examples=100)
    missed = {said(mutant) for mutant in record["equation_mutants"]["survivors"]}
    assert missed == {(each, text) for each in {name, "kl"} for text in EQUIVALENT.get(each, set())} & {
        (mutant.equation, f"{mutant.after} for {mutant.before}") for mutant in found(formulas, name)
    }
    assert record["equation_mutants"]["killed"] == record["equation_mutants"]["total"] - len(missed) > 0


def test_infinite_value_does_not_hide_other_errors(tried) -> None:
    equations = {
        "e": {
            "domain": {"x": "real[N] 1..2"},
            "result": "real[N]",
            "expression": "where(x > 1.5, inf, x)",
            "implemented_by": "f(x)",
        }
    }
    right = tried(equations, "e", {"f": lambda x: torch.where(x > 1.5, torch.inf, x)})
    assert right["status"] == "held"
    assert {said(mutant)[1] for mutant in right["equation_mutants"]["survivors"]} <= {"x >= 1.5 for x > 1.5"}
    assert tried(equations, "e", {"f": lambda x: x})["status"] == "refuted"
    assert tried(equations, "e", {"f": lambda x: torch.where(x > 1.5, torch.inf, 2 * x)})["status"] == "refuted"
