"""A clone of `pv` is validated with its own suites, also by a `pv` that is installed elsewhere."""

import subprocess
import sys
from pathlib import Path

SCRIPT = """
from pv.workers.worker import _prefer_suites
_prefer_suites([{root!r}])
import pv.suites.mine
print(pv.suites.mine.__file__)
"""


def test_suites_of_a_root_come_before_those_that_are_installed(tmp_path: Path) -> None:
    folder = tmp_path / "pv" / "suites"
    folder.mkdir(parents=True)
    (folder / "mine.py").write_text("")
    script = SCRIPT.format(root=str(tmp_path))
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert ended.stdout.strip() == str(folder / "mine.py"), ended.stderr
