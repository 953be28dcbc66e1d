import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from pv.suites.training_loop.probe import Probe, token_loss
from pv.suites.training_loop.recording import Recorder, record

ROWS = torch.tensor([[3, 40, 41], [5, 42, 43]])


def recorded() -> tuple[Recorder, Probe]:
    found = record()
    return found, found.watch(Probe())


def test_step_has_the_names_since_the_last_one() -> None:
    found, probe = recorded()
    optimizer = torch.optim.AdamW([{"params": [probe.embed.weight]}, {"params": [*probe.head.parameters()], "lr": 0.5}])
    handle = register_optimizer_step_post_hook(found.note_step)
    token_loss(probe(ROWS), ROWS).backward()
    optimizer.step()
    probe(ROWS[:1])
    handle.remove()
    (step,) = found.steps
    assert step.names == (3, 5) and found.pending == [(3,)]
    assert step.rates == {"embed.weight": 0.001, "head.weight": 0.5, "head.bias": 0.5}
    assert step.state["head.bias.step"] == 1 and step.state["embed.weight.exp_avg"].any()


def test_forwards_are_told_apart_by_mode_and_gradient() -> None:
    found, probe = recorded()
    probe.eval()(ROWS)
    with torch.no_grad():
        probe.train()(ROWS)
    probe(torch.zeros(1, 2, dtype=torch.long))
    assert (found.pending, found.evaluated, found.untrained) == ([], [(3, 5)], [(3, 5)])


def test_optimizer_of_another_model_is_not_recorded() -> None:
    found, _ = recorded()
    found.note_step(torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0))
    assert found.steps == []
