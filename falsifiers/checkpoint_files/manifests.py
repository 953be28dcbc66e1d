"""Manifests that are changed together with their digest. Nothing of the trainer is imported, so faults may use it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


def edited(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the manifest at `path`, and its digest with it."""
    tree = json.loads(path.read_text())
    change(tree)
    rest = {name: value for name, value in tree.items() if name != "sha256"}
    digest = hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps({**tree, **({"sha256": digest} if "sha256" in tree else {})}))
