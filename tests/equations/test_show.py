"""Equations as text."""

from pv.equations import show
from pv.equations.parse import parse_equations

EQUATIONS = {
    "square": {
        "domain": {"x": "real[N]"},
        "requires": "any(x > 0, N)",
        "expression": "y = x*x\nsum(y)",
        "implemented_by": "square(x)",
        "invariants": ["square(x)>=0"],
    },
    "slope": {
        "derivative_of": {"equation": "square", "with_respect_to": "x"},
        "result": "real[N]",
        "expression": "2*x",
    },
    "pair": {"domain": {"x": "real"}, "result": "real, real", "expression": "x, -x"},
}


def test_every_part_of_an_equation_is_shown() -> None:
    definitions, problems = parse_equations(EQUATIONS)
    assert problems == []
    assert list(show.text(definitions["square"], "nats")) == [
        "  square  [nats]",
        "      y = x * x",
        "      square = sum(y)",
        "      always square(x) >= 0",
        "      where any(x > 0, N)",
        "      code: square(x)",
    ]
    assert list(show.text(definitions["slope"], "")) == [
        "  slope",
        "      slope = 2 * x",
        "      where any(x > 0, N)",
        "      the derivative of square by x",
    ]
    assert list(show.text(definitions["pair"], ""))[1] == "      pair = x, -x"
