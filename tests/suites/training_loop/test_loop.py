from dataclasses import replace
from pathlib import Path

import pytest

from pv.suites.training_loop import loop
from pv.suites.training_loop.claims.cases import saved_job


def test_truncated_checkpoint_is_refused(tmp_path: Path) -> None:
    saved = replace(saved_job(), directory=tmp_path)
    path = loop.Loop().run(saved).checkpoints[3]
    whole = (path / "optimizer.pt").read_bytes()
    (path / "optimizer.pt").write_bytes(whole[: len(whole) // 2])
    with pytest.raises((OSError, RuntimeError)):
        loop.Loop().run(replace(saved, resume=path))
