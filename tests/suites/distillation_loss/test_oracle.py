from dataclasses import replace

from pv.suites.distillation_loss.bench import drawn
from pv.suites.distillation_loss.oracle import Convention, explained


def test_conventions_differ_by_their_factors() -> None:
    case = drawn(0, 3.0, masked=True)
    mean = float(Convention().loss(case))
    kept = int(case.keep.sum())
    for change, factor in (
        ({"factor": "1"}, 1 / 9),
        ({"reduction": "sum"}, kept),
        ({"reduction": "batchmean"}, kept / 2),
    ):
        assert abs(float(replace(Convention(), **change).loss(case)) - mean * factor) < 1e-9
    assert explained(mean, case, Convention()) == ""
    assert explained(3 * mean, case, Convention()).startswith("; it is T times that")
