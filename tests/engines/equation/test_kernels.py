"""The project `kernels`: PyTorch's softmax, cross-entropy, RMSNorm, SwiGLU and AdamW hold."""

import pv
from pv.results.outcome import Outcome


def test_pytorch_holds_and_every_equation_mutant_is_killed(project) -> None:
    project("kernels")
    report = pv.validate(examples=20, jobs=2)
    assert report.exit_code == 0, pv.render(report)
    results = report.contracts[0].results
    assert [result.outcome for result in results] == [Outcome.HELD] * 10
    assert [result.falsifier.id for result in results if result.trial.equation_mutants.survivors] == []
    assert min(result.trial.equation_mutants.total for result in results) >= 5
