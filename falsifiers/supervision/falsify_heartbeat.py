"""Attacks on heartbeats: which ranks are silent, and which are killed. The subject is `supervision.heartbeat`."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.support.scratch import scratch

LIVES_S = 60.0
"""How long a process lives that nothing kills."""


AGES = st.sampled_from([0.0, 3.0, 9.9, 10.1, 99.0])


@given(ages=st.dictionaries(st.integers(0, 2000), AGES, max_size=12))
def falsify_silent_ranks_are_found_by_the_age_of_their_beat(subject: Any, ages: dict[int, float]) -> None:
    """ages: of the beat of each rank. Its step is its number and one."""
    ended = os.fork()
    if ended == 0:
        os._exit(0)
    os.waitpid(ended, 0)
    with scratch() as directory:
        for number, age in ages.items():
            beat = subject.Beat(pid=ended, born="1", step=number + 1, time=1000.0 - age)
            (directory / f"rank-{number}.json").write_text(json.dumps(asdict(beat)))
        (directory / "rank-x.json").write_text("not a beat")
        seen = sorted(beat.step for beat in subject.silent(subject.beats(directory), 1000.0, 10.0))
        expected = sorted(number + 1 for number, age in ages.items() if age > 10.0)
        assert seen == expected, f"of ranks with beats of the ages {ages} s, {seen} are silent; expected {expected}"
        killed = subject.kill_stale(directory)
        assert killed == [], f"of processes that have ended, {killed} are killed"
        left = sorted(path.name for path in directory.iterdir())
        assert not left, f"once a supervisor begins, {left} are left of an earlier one"


@contextmanager
def _ranks(subject: Any, directory: Path, count: int) -> Iterator[list[Any]]:
    """Yield the first beats of processes that were started one after another, at least two ticks of a clock apart."""
    found = list[Any]()
    try:
        for number in range(count):
            pid = os.fork()
            if pid == 0:
                subject.Heart(directory / f"rank-{number}.json")
                time.sleep(LIVES_S)
                os._exit(0)
            found.append(_first_beat(subject, directory, pid))
            time.sleep(2 / os.sysconf("SC_CLK_TCK"))
        yield found
    finally:
        for beat in found:
            os.kill(beat.pid, signal.SIGKILL)
            os.waitpid(beat.pid, 0)


def _first_beat(subject: Any, directory: Path, pid: int) -> Any:
    while True:
        for beat in subject.beats(directory):
            if beat.pid == pid:
                return beat
        time.sleep(0.001)


@given(recycled=st.lists(st.booleans(), min_size=1, max_size=3))
def falsify_only_ranks_of_an_earlier_supervisor_are_killed(subject: Any, recycled: list[bool]) -> None:
    with scratch() as root:
        own, left = root / "own", root / "left"
        own.mkdir(), left.mkdir()
        with _ranks(subject, own, 1 + len(recycled)) as (earlier, *ranks):
            for number, (beat, is_recycled) in enumerate(zip(ranks, recycled, strict=True)):
                found = replace(beat, born=earlier.born) if is_recycled else beat
                (left / f"rank-{number}.json").write_text(json.dumps(asdict(found)))
            told = [beat.pid for beat in subject.kill_stale(left)]
            expected = [beat.pid for beat, is_recycled in zip(ranks, recycled, strict=True) if not is_recycled]
            assert told == expected, f"ranks {recycled} are other processes; {told} are killed, expected {expected}"
            for beat in ranks:
                wait = os.WEXITED | os.WNOWAIT | (0 if beat.pid in expected else os.WNOHANG)
                end = os.waitid(os.P_PID, beat.pid, wait)
                killed = end is not None and end.si_status == signal.SIGKILL
                assert killed == (beat.pid in expected), f"ranks {recycled} are other processes; {beat} ended as {end}"
