"""Record the actions of a training script, without changes to the script.

`python -m pv.observe -- python train.py` runs a command with an observer in all of its Python processes, and writes one
trace per process into a folder; `pv check --trace FOLDER` judges the traces. The observer itself judges nothing. It
needs only Python 3.9 or newer and torch 2.1 or newer.

launch         starts the command; `site/sitecustomize.py` starts the observer in each of its Python processes
trace          the events, their JSON lines, and tensor values that are read later
call_sites     the line of the script that an event belongs to
observer       the hooks on forwards, backward passes, clipping and steps; they call the modules below

losses, heads  the weight of a token or an example in the gradient; `heads` for losses fused with the output layer
tokens         labels: shift, padding, end of a text
terms          terms of a loss without a gradient
distributions  samples of distributions
parameters     layers, gradients, initial values; `masters` for copies of weights, `sharding` for shards
handwritten    updates of parameters without an optimizer
schedules      learning rates
averages       averages of weights
modes          training and eval mode, normalization
loaders        batches of data loaders; `workers` for their worker processes, `datasets` for facts about data sets
seeds          seeds that are set during the training
collectives    exchanges and reductions between ranks
checkpoints    saves and loads; kills the process on request
reported       numbers that the script prints or logs; `metrics` for metrics of libraries
probes         forwards with changed inputs, in a fork
frames         hides the frames of the wrappers in warnings and tracebacks
"""

import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Union

OBSERVED = "_pv_observe"
"""The name of this package in a process that is observed from its start; see `site/sitecustomize.py`."""

__all__ = ["recording", "start_from_environment"]


def start_from_environment() -> None:
    """Start the observer of this process with the folder and options in environment variables.

    `pv.observe.launch` sets these variables.
    """
    from . import launch, observer

    folder = Path(os.environ["PV_OBSERVE_TRACE"])
    folder.mkdir(parents=True, exist_ok=True)
    observer.install(folder, launch.options_from_environment())


@contextmanager
def recording(folder: Union[str, Path], *, sample: int = 1, probes: bool = True) -> Iterator[None]:
    """Record this process inside a `with` block: `with pv.observe.recording("trace"): train()`.

    `pv.observe("trace")` is a short form. In a process that `pv check -- COMMAND` or `python -m pv.observe` already
    observes, this context manager has no effect.

    Enter the block before you import the modules of the training. Functions of torch that these modules
    import by name (`from torch.nn.functional import cross_entropy`) before the block are not observed.

    Args:
        folder: The folder that the trace is written to. It is created if it does not exist.
        sample: Record losses only in the first steps and in every `sample`-th step.
        probes: Call models with changed inputs in a forked copy of this process.
    """
    if OBSERVED in sys.modules:
        yield
        return
    from . import launch, observer

    Path(folder).mkdir(parents=True, exist_ok=True)
    observer.install(Path(folder), launch.Options(sample=sample, probes=probes))
    try:
        yield
    finally:
        observer.current.finish()
        observer.current.is_over = True


class _Recorder(ModuleType):
    """A callable module: `pv.observe(folder)` is short for `pv.observe.recording(folder)`."""

    def __call__(self, folder: Union[str, Path], sample: int = 1) -> AbstractContextManager[None]:
        return recording(folder, sample=sample)


sys.modules[__name__].__class__ = _Recorder
