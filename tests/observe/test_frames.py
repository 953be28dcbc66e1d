"""Warnings and tracebacks of an observed script have no line of the observer, and are the same without it."""

import os
from pathlib import Path

import pytest

from pv.observe import launch
from tests.support.processes import python

pytest.importorskip("torch", reason="the script needs torch")

# Each of the first lines warns; `OldNet` as libraries do, of their callers; then two exceptions, one chained.
SCRIPT = """
import warnings
import torch
from torch import nn
from torch.nn import functional as F

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.drop, self.norm = nn.Linear(3, 3), nn.Dropout(0.1), nn.BatchNorm1d(4)
    def forward(self, x, broken=False):
        x = F.softmax(self.drop(self.layer(x)))
        warnings.warn("mine", stacklevel=3)
        return self.norm(x) if broken else x

net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
for _ in range(2):
    loss = net(torch.ones(3, 3)).sum() + F.mse_loss(torch.ones(3, 1), torch.ones(3))
loss.backward()
float(loss)
schedule.step()
optimizer.step()
ended = (p for p in net.parameters())
list(ended)
nn.utils.clip_grad_norm_(ended, 1.0)
try:
    net(torch.ones(3, 3), broken=True)
except RuntimeError as error:
    raise ValueError("in the script") from error
"""


def test_warnings_and_tracebacks_name_lines_of_the_script_as_without_an_observer(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    plain = python("train.py", cwd=tmp_path)
    observed = python("train.py", cwd=tmp_path, env={**os.environ, **launch.environment(tmp_path / "trace")})
    for text in ("UserWarning: mine", "to a scalar", "a target size", "lr_scheduler", "an empty gen"):
        assert text in plain.stderr
    assert "RuntimeError" in plain.stderr and "ValueError: in the script" in plain.stderr
    assert observed.stderr == plain.stderr
    assert list((tmp_path / "trace").glob("*.jsonl"))
