"""LaTeX and mutants of equations: different ones are never written the same, and of mutants none is missing."""

import ast
from pathlib import Path

import pytest
import yaml

from pv.equations.display import latex, text
from pv.equations.language import parse
from pv.equations.mutants import mutants
from pv.equations.parse import parse_equations
from tests.commands.small import run

HERE = Path(__file__).parent


def test_different_equations_have_different_latex(formulas) -> None:
    contract = HERE.parent / "projects" / "kernels" / "contracts" / "kernels.yaml"
    more = yaml.safe_load(contract.read_text(encoding="utf-8"))["equations"]
    definitions, problems = parse_equations({**formulas, **more})
    assert problems == []
    callees = {name: equation.callee for name, equation in definitions.items()}
    compared = 0
    for name, equation in definitions.items():
        others = [c.callees[name].formula for c in mutants(name, callees, equation.results) if c.equation == name]
        texts = [latex(name, formula) for formula in (equation.formula, *others)]
        assert len(set(texts)) == len(texts), name
        compared += len(others)
    assert compared > 800


@pytest.mark.parametrize(("expression", "expected"), yaml.safe_load((HERE / "latex.yaml").read_text()).items())
def test_expression_has_the_brackets_it_needs(expression, expected) -> None:
    assert latex("e", parse(expression)) == f"\\begin{{aligned}}\ne &= {expected}\n\\end{{aligned}}"


def test_every_key_of_an_equation_is_shown() -> None:
    keys = {
        "domain": {"x": "real[N]"},
        "expression": "y = 2 * x\nsum(y), N",
        "result": "real, real",
        "invariants": ["N > 0", "all(x * x >= 0)"],
        "requires": "any(x > 0)",
        "implemented_by": "f(x)",
    }
    equations, problems = parse_equations({"e": keys})
    assert problems == []
    assert (
        "\n".join(text(equations["e"], "nats"))
        == """\
  e  [nats]
      y = 2 * x
      e = sum(y), N
      always N > 0
      always all(x * x >= 0)
      where any(x > 0)
      code: f(x)"""
    )


def test_show_prints_the_parsed_equations_and_refuses_an_invalid_one_at_its_position(project) -> None:
    folder = project("kernels")
    shown = run("show").stdout
    assert "  cross_entropy  [nats]\n      cross_entropy = mean(logsumexp(x, V) - x[y], B)\n" in shown
    assert "      always cross_entropy(x, y) >= 0\n" in shown
    assert "      the derivative of cross_entropy by x\n" in shown
    as_latex = run("show", "--format", "latex").stdout
    assert "% cross_entropy\n\\begin{aligned}\n\\mathrm{cross\\_entropy} &= \\operatorname{mean}_{B}" in as_latex
    contract = folder / "contracts/kernels.yaml"
    contract.write_text(contract.read_text().replace("mean(logsumexp(x, V) - x[y], B)", "mean(logsumexp(x, Q), B)"))
    ended = run("show")
    assert ended.returncode == 3
    assert "PV180 expression of cross_entropy: expected the name of an axis" in ended.stdout + ended.stderr


COMPLETE = yaml.safe_load((HERE / "mutants.yaml").read_text())


def generate(equations, name):
    parsed, problems = parse_equations(equations)
    assert problems == []
    callees = {key: equation.callee for key, equation in parsed.items()}
    return list(mutants(name, callees, parsed[name].results))


def test_mutant_has_its_position_and_the_text_before_and_after(formulas) -> None:
    shown = {(c.equation, c.line, c.column, c.before, c.after) for c in generate(formulas, "kd_loss")}
    assert shown >= {
        ("kd_loss", 1, 10, "y != -100", "y == -100"),
        ("kd_loss", 3, 23, "t / tau", "t"),
        ("kd_loss", 3, 23, "t", "s"),
        ("kd_loss", 4, 40, "2", "1"),
        ("kd_loss", 4, 6, "ce_weight", "kd_weight"),
        ("kl", 1, 27, "log_q", "log_p"),
    }


def test_equations_that_are_called_by_called_ones_are_mutated_too() -> None:
    expressions = {"inner": "a + 1", "middle": "2 * inner(a)", "outer": "middle(a)"}
    equations = {name: {"domain": {"a": "real 1..2"}, "expression": text} for name, text in expressions.items()}
    assert {mutant.equation for mutant in generate(equations, "outer")} == {"inner", "middle"}


@pytest.mark.parametrize("expression", COMPLETE)
def test_mutants_of_a_small_equation_are_complete(expression) -> None:
    domain = {"a": "real 1..2", "b": "real 1..2", "x": "real[N]"}
    every = generate({"e": {"domain": domain, "expression": expression}}, "e")
    lines = [[(line.name, ast.unparse(line.value)) for line in m.callees["e"].formula.lines] for m in every]
    shown = {"\n".join(f"{name} = {value}" if name else value for name, value in pairs) for pairs in lines}
    assert shown == set(COMPLETE[expression])
    assert len(every) == len(COMPLETE[expression])
