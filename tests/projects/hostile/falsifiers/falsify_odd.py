"""Falsifiers that misbehave in every way that a worker must survive."""

import ctypes
import itertools
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

CALLS = itertools.count(1)
FAILED = []
NEIGHBOUR = Path(os.environ.get("HOSTILE_FOLDER", os.devnull), "neighbour-has-started")
SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]


@given(x=st.integers())
def falsify_good(subject, x):
    assert subject.double(x) == x + x


def falsify_hang_in_python(subject):
    subject.double(1)
    while True:
        pass


def falsify_hang_in_c(subject):
    subject.double(1)
    re.match(r"(a+)+$", "a" * 64 + "b")


def falsify_segfault(subject):
    subject.double(1)
    ctypes.string_at(0)


def falsify_exit_zero(subject):
    subject.double(1)
    os._exit(0)


def falsify_system_exit(subject):
    subject.double(1)
    raise SystemExit(0)


def falsify_eat_memory(subject):
    subject.double(1)
    hoard = []
    while True:
        hoard.append(b"x" * (16 << 20))
        time.sleep(0.01)  # memory is polled: on a busy machine it must not grow far between two polls


def falsify_eat_memory_in_a_child(subject):
    subject.double(1)
    code = "import time\nh = []\nwhile True: h.append(b'x' * (16 << 20)); time.sleep(0.01)"
    subprocess.run([sys.executable, "-c", code], check=False)
    time.sleep(600)


def falsify_print_100_mb(subject):
    subject.double(1)
    line = "x" * 99 + "\n"
    for _ in range(1000):
        sys.stdout.write(line * 1000)
    print("the last line")


@given(x=st.integers())
def falsify_slow_to_shrink(subject, x):
    subject.double(1)
    if x >= 1000:
        time.sleep(600 if FAILED else 0)
        FAILED.append(x)
    assert x < 1000


@given(x=st.integers())
def falsify_flaky(subject, x):
    subject.double(1)
    assert next(CALLS) % 7


def falsify_raises_nothing(subject):
    with pytest.raises(ValueError):
        subject.double(1)


def falsify_leave_daemons(subject):
    subject.double(1)
    for _ in range(3):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                time.sleep(600)
            os._exit(0)
    subprocess.Popen(SLEEPER, start_new_session=True)


def falsify_daemons_then_exit_zero(subject):
    falsify_leave_daemons(subject)
    os._exit(0)


def falsify_daemons_then_hang(subject):
    falsify_leave_daemons(subject)
    Path(os.environ.get("HOSTILE_SIGN", os.devnull)).write_text("hanging")
    time.sleep(600)


def falsify_close_everything(subject):
    subject.double(1)
    os.closerange(0, 300)


def falsify_stop_itself(subject):
    subject.double(1)
    os.kill(os.getpid(), signal.SIGSTOP)


def falsify_leave_a_thread(subject):
    subject.double(1)
    threading.Thread(target=time.sleep, args=(600,)).start()


def falsify_kill_the_server(subject):
    subject.double(1)
    while not NEIGHBOUR.exists():
        time.sleep(0.01)
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(600)


def falsify_beside_the_killer(subject):
    if not NEIGHBOUR.exists():
        NEIGHBOUR.touch()
        time.sleep(600)
    assert subject.double(2) == 4


@given(xs=st.integers(100_000, 200_000).map(lambda n: ["long"] * n))
def falsify_long_counterexample(subject, xs):
    subject.double(1)
    assert len(xs) < 0
