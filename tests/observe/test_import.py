"""The observer starts when torch is imported, however the script comes to import it."""

import contextlib
import multiprocessing
import sysconfig
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import pv

pytest.importorskip("torch", reason="the observer needs torch")


def test_the_file_that_starts_a_console_command_is_no_line_of_the_user() -> None:
    from pv.observe.call_sites import CallSites

    assert not CallSites().is_user(f"{sysconfig.get_path('scripts')}/train-command")
    assert CallSites().is_user(__file__)


def test_functions_with_equal_code_have_different_call_sites() -> None:
    from pv.observe.call_sites import CallSites

    sites = CallSites()

    def one() -> tuple[str, int]:
        return sites.find(1)

    def two() -> tuple[str, int]:
        return sites.find(1)

    (first, first_number), (second, second_number) = [function() for function in (one, two)]
    assert first != second and first_number != second_number


@pytest.mark.parametrize(("option", "value"), [("sample", "0"), ("steps", "-1")])
def test_invalid_number_is_refused_before_the_command_runs(
    option: str, value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from pv.observe.__main__ import main

    with pytest.raises(SystemExit) as stop:
        main([f"--{option}", value, "--trace", str(tmp_path), "--", "no-such-command"])
    assert stop.value.code == 3
    assert f"invalid value {value} for '{option}': expected an integer from" in capsys.readouterr().err


def test_reduction_over_a_group_does_not_count_however_the_group_is_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    import torch.distributed as dist

    from pv.observe import collectives

    for name in filter(partial(hasattr, dist), (*collectives.EXCHANGES, "reduce_scatter_single")):
        monkeypatch.setattr(dist, name, lambda *args, **kwargs: None)
    monkeypatch.setattr(dist, "get_world_size", lambda group=None: 2 if group is None else 1)
    observer: Any = SimpleNamespace(steps=0, in_module=False, backward=None, reduced=0, reducers={})
    observer.is_same_process, observer.observing = lambda: True, contextlib.nullcontext
    collectives.install(lambda: observer)
    calls: Any = dist
    tensor, total = torch.ones(3), dist.ReduceOp.SUM
    calls.all_reduce(tensor, total, "part")
    calls.all_reduce(tensor, group="part")
    calls.reduce_scatter_tensor(tensor, tensor, total, "part")
    assert observer.reduced == 0
    calls.all_reduce(tensor, total)
    assert observer.reduced == 3


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
