"""LaTeX of equations: different equations are never written the same."""

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from pv.cli import main
from pv.equations.language import parse
from pv.equations.latex import latex
from pv.equations.mutants import mutants
from pv.equations.parse import parse_equations


@pytest.fixture(scope="module")
def known(formulas):
    """The equations of the formulas and of the contract of kernels."""
    contract = Path(__file__).parents[1] / "projects" / "kernels" / "contracts" / "kernels.yaml"
    more = yaml.safe_load(contract.read_text(encoding="utf-8"))["equations"]
    parsed, problems = parse_equations({**formulas, **more})
    assert problems == []
    return parsed


def test_different_equations_have_different_latex(known) -> None:
    callees = {name: equation.callee for name, equation in known.items()}
    compared = 0
    for name, equation in known.items():
        others = [c.callees[name].formula for c in mutants(name, callees, equation.results) if c.equation == name]
        texts = [latex(name, formula) for formula in (equation.formula, *others)]
        assert len(set(texts)) == len(texts), name
        compared += len(others)
    assert compared > 800


@pytest.mark.parametrize(
    ("expression", "expected"),
    {
        "(a + b) * c": r"\left(a + b\right) \, c",
        "a - (b - c)": r"a - \left(b - c\right)",
        "(a / b) ** 2": r"\left(\frac{a}{b}\right)^{2}",
        "-a ** 2": r"-a^{2}",
        "(-a) ** 2": r"\left(-a\right)^{2}",
        "1e-6 * tau": r"10^{-6} \, \tau",
        "a // b + a % b": r"\left\lfloor \frac{a}{b} \right\rfloor_{\div} + a \bmod b",
        "sum(x, N, where=x > 0) * a": r"\left(\sum_{N \,:\, x > 0} x\right) \, a",
        "log_softmax(x)[y]": r"\operatorname{log\_softmax}\left(x\right)\left[y\right]",
        "not (a < b and b < c) or a == b": r"\lnot \left(a < b \land b < c\right) \lor a = b",
        "where(a < b, 1, -inf)": (r"\begin{cases} 1 & \text{if } a < b \\ -\infty & \text{otherwise} \end{cases}"),
        "theta_0 + x_hat + m1 + τ": r"\theta_{\mathrm{0}} + \hat{x} + m_{\mathrm{1}} + \tau",
    }.items(),
)
def test_expression_has_the_brackets_it_needs(expression, expected) -> None:
    assert latex("e", parse(expression)) == f"\\begin{{aligned}}\ne &= {expected}\n\\end{{aligned}}"


def test_show_prints_the_parsed_equations(project) -> None:
    project("kernels")
    shown = CliRunner().invoke(main, ["show"]).output
    assert "  cross_entropy  [nats]\n      cross_entropy = mean(logsumexp(x, V) - x[y], B)\n" in shown
    assert "      always cross_entropy(x, y) >= 0\n" in shown
    assert "      the derivative of cross_entropy by x\n" in shown
    as_latex = CliRunner().invoke(main, ["show", "--format", "latex"]).output
    assert "% cross_entropy\n\\begin{aligned}\n\\mathrm{cross\\_entropy} &= \\operatorname{mean}_{B}" in as_latex


def test_show_refuses_an_invalid_equation_at_its_position(project) -> None:
    contract = project("kernels") / "contracts" / "kernels.yaml"
    contract.write_text(contract.read_text().replace("mean(logsumexp(x, V) - x[y], B)", "mean(logsumexp(x, Q), B)"))
    ended = CliRunner().invoke(main, ["show"])
    assert ended.exit_code == 3
    assert "PV180 expression of cross_entropy: expected the name of an axis" in ended.output
