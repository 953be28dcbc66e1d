"""Executable equations of contracts as text and LaTeX."""

from dataclasses import replace

from pv.report.formulas import render
from tests.report.equation_reports import equation, report

BASE = report(None, expression="2 * n", domain={"n": "real"}).contracts[0].contract
CONTRACT = replace(BASE, equations=(replace(BASE.equations[0], unit="nats"),))


def test_latex_keeps_names_in_comments() -> None:
    head, blank, name, *formula = render([CONTRACT], "latex").splitlines()
    assert (head, blank, name) == ("% c 1.0.0  c.yaml", "", "% double")
    assert "double" in "".join(formula) and "2" in "".join(formula)
    assert not any(line.startswith("%") for line in formula)


def test_contract_without_valid_equations_shows_nothing() -> None:
    assert render([replace(CONTRACT, equations=(equation(),))], "text") == ""
    assert render([replace(CONTRACT, equations=(equation(expression="1 +"),))], "text") == ""
