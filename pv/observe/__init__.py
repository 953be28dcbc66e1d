"""Record what a training script does, without a change of the script.

`python -m pv.observe -- python train.py` runs a command with an observer in each of its Python processes, and writes
one trace a process into a folder; `pv check --trace FOLDER` judges the traces. The observer needs torch (2.1 or newer)
and the standard library (Python 3.9 or newer). It judges nothing.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Union

__all__ = ["recording", "start_from_environment"]


def start_from_environment() -> None:
    """Observe this process as the environment says that `pv.observe.launch` has set."""
    from . import launch, observer

    folder = Path(os.environ["PV_OBSERVE_TRACE"])
    folder.mkdir(parents=True, exist_ok=True)
    observer.install(folder, launch.options_from_environment())


@contextmanager
def recording(folder: Union[str, Path], *, probes: bool = True) -> Iterator[None]:
    """Record this process: `with pv.observe.recording("trace"): train()`.

    Functions of torch that were imported by name before (`from torch.nn.functional import cross_entropy`) are not seen,
    so enter this block before the modules of the training are imported.

    Args:
        folder: Where the trace is written; made if it does not exist.
        probes: Whether to run probes of the model in a forked copy of this process.
    """
    from . import launch, observer

    Path(folder).mkdir(parents=True, exist_ok=True)
    observer.install(Path(folder), launch.Options(probes=probes))
    try:
        yield
    finally:
        observer.current.finish()
