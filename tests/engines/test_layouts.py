"""The code with arrays in other memory layouts."""

from tests.equations.conftest import tried as tried

EQUATIONS = {
    "e": {
        "domain": {"x": "real[N,M]", "p": "prob[M]", "n": "int 1..3"},
        "result": "real[N,M]",
        "expression": "x * p + n",
        "implemented_by": "f(x, p, n)",
    }
}


def viewed(x, p, n):
    return (x.view(-1).view(x.shape)) * p + n


def written(x, p, n):
    x = x.clone() if x.is_contiguous() else x
    return x.mul_(p).add_(n)


def checking(*names):
    return {"e": {**EQUATIONS["e"], "checks": list(names)}}


def test_code_that_needs_contiguous_arrays_is_refuted(tried) -> None:
    assert tried(EQUATIONS, "e", {"f": viewed})["status"] == "held"
    record = tried(checking("noncontiguous_inputs"), "e", {"f": viewed})
    assert record["status"] == "refuted"
    assert "with non-contiguous inputs the code raised RuntimeError: view size is not compatible" in record["error"]


def test_code_that_writes_into_an_expanded_array_is_refuted(tried) -> None:
    record = tried(checking("expanded_inputs"), "e", {"f": written})
    assert record["status"] == "refuted"
    assert record["error"].startswith("Refuted: with expanded inputs the code ")
