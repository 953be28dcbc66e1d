"""The observer starts when torch is imported, however the script comes to import it."""

import multiprocessing
import sysconfig
from pathlib import Path

import pytest

import pv

pytest.importorskip("torch", reason="the observer needs torch")


def test_the_file_that_starts_a_console_command_is_no_line_of_the_user() -> None:
    from pv.observe.call_sites import CallSites

    assert not CallSites().is_user(f"{sysconfig.get_path('scripts')}/train-command")
    assert CallSites().is_user(__file__)


def _train(steps: int, *, clears: bool) -> None:
    import torch

    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        if clears:
            optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(torch.randn(4, 3)), torch.randint(2, (4,))).backward()
        optimizer.step()


def _train_in_blocks(folder: Path) -> None:
    with pv.observe(folder / "first"):
        _train(3, clears=True)
    _train(4, clears=False)
    with pv.observe(folder / "second"):
        _train(2, clears=True)


def _accumulate(folder: Path, *, beside: bool) -> None:
    import torch

    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    other = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    with pv.observe(folder, sample=4):
        for _ in range(12):
            optimizer.zero_grad()
            for size in (4, 6):
                rows = torch.nn.functional.cross_entropy(model(torch.randn(size, 3)), torch.randint(2, (size,)))
                (rows * size / 10).backward()
                if beside:  # steps of another optimizer, so that a window is sampled in part
                    other.param_groups[0]["params"][0].sum().backward()
                    other.step()
                    other.zero_grad()
            optimizer.step()


@pytest.mark.parametrize(("beside", "whole"), [(False, [0, 1, 2, 4, 8]), (True, [0])])
def test_losses_of_every_fourth_step_are_all_noted_or_none(beside: bool, whole: list[int], tmp_path: Path) -> None:
    child = multiprocessing.get_context("fork").Process(target=_accumulate, args=(tmp_path,), kwargs={"beside": beside})
    child.start()
    child.join()
    assert child.exitcode == 0
    run = pv.check_run(trace=tmp_path)
    (windows,) = (ws for ws in run.run.processes[0].windows.values() if len(ws[0].passes) == 2)
    losses = [[len(part.losses) for part in window.passes] for window in windows]
    assert losses == [[1, 1] if step in whole else [0, 0] for step in range(12)]
    assert run.falsified == [], str(run)


def test_each_block_records_itself_once_and_nothing_after_it(tmp_path: Path) -> None:
    child = multiprocessing.get_context("fork").Process(target=_train_in_blocks, args=(tmp_path,))
    child.start()
    child.join()
    assert child.exitcode == 0
    for name, steps in (("first", 3), ("second", 2)):
        run = pv.check_run(trace=tmp_path / name)
        assert (run.run.steps, run.falsified, run.audited) == (steps, [], (steps, steps))
        assert [len(p.losses) for w in run.run.processes[0].windows[1] for p in w.passes] == [1] * steps
