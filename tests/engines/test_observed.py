"""Calls of the code under contract: its arguments, its device, its gradient."""

import torch

from tests.equations.conftest import tried as tried


def test_code_that_writes_into_its_arguments_is_compared_at_the_original_values(tried) -> None:
    equations = {
        "e": {"domain": {"x": "real[N]", "m": "mask[N]"}, "result": "real[N]", "expression": "where(m, 2 * x, 0)"}
    }
    equations["e"]["implemented_by"] = "f(x, m)"

    def careless(x, m):
        x.mul_(2).mul_(m)
        m.zero_()
        return x

    assert tried(equations, "e", {"f": careless})["status"] == "held"
    record = tried(equations, "e", {"f": lambda x, m: careless(x, m) * 2})
    assert record["inputs"]["m"].any()


def test_code_without_a_gradient_is_refuted(tried) -> None:
    equations = {
        "square": {"domain": {"x": "real 1..2"}, "expression": "x**2", "implemented_by": "square(x)"},
        "slope": {"derivative_of": {"equation": "square", "with_respect_to": "x"}, "expression": "2 * x"},
    }
    record = tried(equations, "slope", {"square": lambda x: x.detach() ** 2})
    assert record["error"] == (
        "Refuted: the result of the code of square carries no gradient, so it cannot be differentiated by x"
    )
    assert tried(equations, "slope", {"square": lambda x: x**2})["status"] == "held"


def test_only_the_arrays_of_the_code_are_on_the_device(tried) -> None:
    """On the device `meta` arrays have no numbers: whatever else were there could not be evaluated or compared."""
    equations = {
        "size": {
            "domain": {"x": "real[N,M]", "y": "index of N [M]", "m": "mask[N]", "tau": "real 1..2", "many": "mask"},
            "requires": "sum(x, N, M) > 0 and any(m, N)",
            "result": "real, real[N]",
            "expression": "tau * N, where(m, 0, 0) + M",
            "implemented_by": "size(x, y, [m], tau, many)",
            "invariants": ["sum(x, N, M) > 0"],
        }
    }
    given = []

    def size(x, y, masks, tau, many):
        given.append([each.device.type for each in (x, y, *masks)] + [type(tau), type(many)])
        return tau * x.shape[0], torch.full((x.shape[0],), float(x.shape[1]))

    record = tried(equations, "size", {"size": size}, device="meta", examples=30)
    assert (record["status"], record["valid"]) == ("held", 30)
    assert given == [["meta", "meta", "meta", float, bool]] * 30
    wrong = tried(equations, "size", {"size": lambda x, *others: size(x.T, *others)}, device="meta")
    assert wrong["status"] == "refuted"
    assert wrong["inputs"]["x"].device.type == "cpu"


def test_nan_inside_the_domain_is_an_error_of_the_contract(tried) -> None:
    entropy = {"domain": {"p": "prob[V]"}, "result": "real", "implemented_by": "f(p)"}
    plain = {**entropy, "expression": "-sum(p * log(p), V)"}
    record = tried({"entropy": plain}, "entropy", {"f": lambda p: -(p * p.log()).sum()})
    assert record["detail"].startswith("entropy has no value (NaN) here, inside its domain")
    whole = {**entropy, "expression": "-sum(p * log(p), V, where=p > 0)"}
    assert tried({"entropy": whole}, "entropy", {"f": lambda p: torch.special.entr(p).sum()})["status"] == "held"
