"""Callbacks of a file in another process; what is made and refused is attacked in `falsifiers/callbacks_file`."""

import json
import subprocess
import sys
from pathlib import Path

CODE = """
import json, sys
from pathlib import Path
from reference_trainer.training.callbacks_file import load_callbacks
print(json.dumps([each.state for each in load_callbacks(Path(sys.argv[1]))]))
"""


def test_another_process_makes_the_same_callbacks(tmp_path: Path) -> None:
    path = tmp_path / "callbacks.toml"
    path.write_text(
        '[[callbacks]]\nuse = "falsifiers.callbacks_file.mine:Mine"\n'
        'arguments = {threshold = 0.5, names = ["a"], other = {secret = "token-9"}}\n'
    )
    command = [sys.executable, "-c", CODE, str(path)]
    root = Path(__file__).parents[3]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root).stdout
    assert json.loads(printed) == [{"threshold": 0.5, "names": ["a"], "other": {"secret": "token-9"}}]
