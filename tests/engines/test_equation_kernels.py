"""The project `kernels`: PyTorch's softmax, cross-entropy, RMSNorm, SwiGLU and AdamW hold, faulty ones do not."""

import pytest

import pv
from pv.results.outcome import Outcome

EXAMPLES = 20


@pytest.fixture
def kernels(project):
    return project("kernels")


def test_pytorch_holds_and_every_equation_mutant_is_killed(kernels) -> None:
    report = pv.validate(examples=EXAMPLES, jobs=2)
    assert report.exit_code == 0, pv.render(report)
    results = report.contracts[0].results
    assert [result.outcome for result in results] == [Outcome.HELD] * 10
    assert [result.falsifier.id for result in results if result.trial.equation_mutants.survivors] == []
    assert min(result.trial.equation_mutants.total for result in results) >= 5


def test_fault_in_each_kernel_is_found(kernels) -> None:
    report = pv.validate(examples=EXAMPLES, jobs=2, subjects={"kernels": "naive"})
    results = {result.falsifier.id: result for result in report.contracts[0].results}
    assert {name: result.outcome for name, result in results.items()} == dict.fromkeys(results, Outcome.FALSIFIED)
    assert results["K-ADAMW"].trial.counterexample.error.startswith("Refuted: the code of adamw_step returned")
