import torch

from pv.suites.training_loop.probe import Probe
from pv.suites.training_loop.recording import Recorder, record


def recorded() -> tuple[Recorder, Probe]:
    found = record()
    return found, found.watch(Probe())


def test_optimizer_of_another_model_is_not_recorded() -> None:
    found, _ = recorded()
    found.note_step(torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0))
    assert found.steps == []
