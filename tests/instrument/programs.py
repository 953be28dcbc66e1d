"""A small subject, and programs that import it, each in an interpreter of its own.

They are hooked as a worker's child would be: by the environment alone.
"""

import json
import os
from pathlib import Path
from typing import Any

from pv.instrument.import_hook import Plan
from tests.support.processes import Ended, python

SITE = Path(__file__).parents[2] / "pv" / "instrument" / "site"
SUBJECT = '''"""A subject."""
from __future__ import annotations

import functools

SCALE = 2


def scaled(function):
    """Multiplies what the function gives."""

    @functools.wraps(function)
    def inner(number):
        return function(number) * SCALE

    return inner


def default():
    return 10


@scaled
def decorated(number, extra=default()):
    # a remark
    return (
        number
        + extra
    )


def double(number):
    return number * 2


def fails(number):
    below = [
        number,
        number,
    ]
    raise ValueError(below)


def lines(number):
    yield double(number)


class Counter:
    """Counts."""

    step = 1
    both = step + default()

    @property
    def next(self):
        return self.step + 1

    @staticmethod
    def twice(number):
        return double(number)


if __name__ == "__main__":
    print(double(3))
'''
OTHER = "def triple(number):\n    return number * 3\n"


def edit(name: str, find: str, replace: str, **fields: Any) -> Plan:
    return Plan(module="subject", name=name, find=find, replace=replace, **fields)


def swap(name: str, by: str, **fields: Any) -> Plan:
    return Plan(module="subject", name=name, swap_with=by, **fields)


def environment(plan: Plan, folder: Path, *first: Path) -> dict[str, str]:
    path = os.pathsep.join(map(str, [SITE, *first, folder]))
    return {**os.environ, "PV_HOOK": plan.to_json(), "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}


def ran(plan: Plan, folder: Path, *arguments: str) -> Ended:
    return python(*arguments, cwd=folder, env=environment(plan, folder))


def value(plan: Plan, folder: Path, code: str) -> Any:
    """What the program prints, as JSON; `show` prints it."""
    script = f"import json\ndef show(value): print(json.dumps(value))\n{code}"
    (folder / "program.py").write_text(script, encoding="utf-8")
    ended = ran(plan, folder, "program.py")
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)
