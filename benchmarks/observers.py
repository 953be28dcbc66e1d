"""What observers keep: the peak memory of a process after 10^4, 10^5 and 10^6 events, one process for each row.

    python benchmarks/observers.py

An event is an `on_log` with ten metrics, fired as the training loop fires it. One observer takes its events at once; a
slow one sleeps 1 ms for each; a stuck one takes none. A list that keeps every context is the comparison.
"""

from __future__ import annotations

import multiprocessing
import resource
import threading
import time
from collections.abc import Callable as Function
from typing import Any

from reference_trainer import Callback, Observer
from reference_trainer.callbacks.base import Context
from reference_trainer.callbacks.dispatch import Callbacks
from reference_trainer.plan.schedule import Event

EVENTS = (10**4, 10**5, 10**6)
METRICS = {f"metric_{number}": float(number) for number in range(10)}


class Prompt(Observer):
    """Takes its events as they come."""

    taken = 0

    def on_log(self, context: Context) -> None:
        self.taken += 1


class Slow(Prompt):
    """Takes a thousand events a second at most."""

    def on_log(self, context: Context) -> None:
        time.sleep(0.001)
        self.taken += 1


class Stuck(Prompt):
    """Takes no event until the process ends."""

    def on_log(self, context: Context) -> None:
        threading.Event().wait(timeout=3600)


class Keeping(Callback):
    """Keeps a copy of every context, as an observer without a bound would."""

    def __init__(self) -> None:
        self.kept: list[Context] = []

    def on_log(self, context: Context) -> None:
        self.kept.append(context.snapshot())


KINDS: dict[str, Function[[], Callback]] = {"prompt": Prompt, "slow": Slow, "stuck": Stuck, "keeps every one": Keeping}


def context(step: int) -> Context:
    """Return the context of a logged step."""
    given: dict[str, Any] = {
        "loss": 1.0,
        "learning_rate": 0.1,
        "best_loss": 1.0,
        "elapsed_s": float(step),
        "tokens": step,
    }
    given |= {"epoch": 1, "epochs": 1, "steps_per_epoch": 10**7, "total_steps": 10**7}
    return Context(step=step, metrics=dict(METRICS, step=float(step)), hook="on_log", memory=0, **given)


def measured(kind: str, events: int, answer: Any) -> None:
    """Fire `events` events; send the seconds, the events taken, and the peak memory in MiB before and after them."""
    observer = KINDS[kind]()
    callbacks = Callbacks([observer], wait_s=0.5)
    before, started = peak_mib(), time.perf_counter()
    for step in range(1, events + 1):
        callbacks.fire(Event.LOG, context(step))
    seconds = time.perf_counter() - started
    after = peak_mib()
    callbacks.close()
    answer.send((seconds, getattr(observer, "taken", events), before, after))


def peak_mib() -> float:
    """Return the peak resident memory of this process; kibibytes on Linux."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    print("| observer | events | taken | us per event | peak RSS, MiB | growth, MiB |\n|---|---|---|---|---|---|")
    spawn = multiprocessing.get_context("spawn")  # a fork would begin with the peak of this process
    for kind in KINDS:
        for events in EVENTS[:-1] if KINDS[kind] is Keeping else EVENTS:
            receiver, sender = spawn.Pipe(duplex=False)
            process = spawn.Process(target=measured, args=(kind, events, sender))
            process.start()
            seconds, taken, before, after = receiver.recv()
            process.kill()  # the thread of the stuck observer would hold it
            process.join()
            figures = f"{1e6 * seconds / events:.0f} | {after:.1f} | {after - before:.1f}"
            print(f"| {kind} | {events:,} | {taken:,} | {figures} |")


if __name__ == "__main__":
    main()
