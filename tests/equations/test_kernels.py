"""Softmax, cross-entropy, RMSNorm, SwiGLU and AdamW, claimed in YAML alone: PyTorch's hold, faulty ones do not."""

import pytest

import pv
from pv.cells import Outcome

EXAMPLES = 40


@pytest.fixture
def kernels(project):
    return project("kernels")


def test_what_pytorch_has_holds_and_every_change_of_an_equation_is_seen(kernels) -> None:
    report = pv.validate(examples=EXAMPLES, jobs=2)
    assert report.exit_code == 0, pv.render(report)
    cells = report.contracts[0].cells
    assert [cell.outcome for cell in cells] == [Outcome.SURVIVED] * 10
    assert {cell.falsifier.id: cell.trial.changes.survivors for cell in cells if cell.trial.changes.survivors} == {}
    assert min(cell.trial.changes.total for cell in cells) >= 5


def test_a_fault_in_each_kernel_is_found(kernels) -> None:
    report = pv.validate(examples=EXAMPLES, jobs=2, subjects={"kernels": "naive"})
    cells = {cell.falsifier.id: cell for cell in report.contracts[0].cells}
    assert {name: cell.outcome for name, cell in cells.items()} == dict.fromkeys(cells, Outcome.FALSIFIED)
    assert cells["K-ADAMW"].trial.counterexample.error.startswith("Refuted: the code of adamw_step gives"), cells[
        "K-ADAMW"
    ].trial
