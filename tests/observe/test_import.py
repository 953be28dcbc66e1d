"""The observer starts when torch is imported, however the script comes to import it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pv.observe import launch

pytest.importorskip("torch", reason="the observer needs torch")

STEP = """
import torch
p = torch.nn.Parameter(torch.ones(2))
p.grad = torch.ones(2)
torch.optim.SGD([p], lr=0.1).step()
"""


def test_a_library_that_looks_for_torch_without_importing_it_hides_nothing(tmp_path: Path) -> None:
    script = f"import importlib.util\nassert importlib.util.find_spec('torch') is not None\n{STEP}"
    subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, **launch.environment(tmp_path)}, check=True, cwd=tmp_path
    )
    assert len(list(tmp_path.glob("trace-*.jsonl"))) == 1
