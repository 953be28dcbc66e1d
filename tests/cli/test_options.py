"""Values of options that are refused."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.calls import run

Project = Callable[[str], Path]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["validate", "nowhere.yaml"],
            "pv: no such file or folder: nowhere.yaml; name a contract file or a folder of contracts",
        ),
        (["validate", "--output", "json"], "--output 'json': write it as FORMAT=FILE"),
        (["validate", "--device", "tpu"], "unknown device 'tpu' (choose from cpu, cuda)"),
        (["validate", "--subject", "counting"], "write it as CONTRACT=module or CONTRACT=module:attribute"),
        (["validate", "--replay", "{}"], "a replay needs exactly one falsifier, not 5: name it with --only"),
        (["validate", "--replay", '{"limit": 1, "limit": 2}', "--only", "C-LIMIT"], "duplicate key 'limit'"),
    ],
)
def test_a_wrong_call_is_refused_with_what_to_try(project: Project, arguments: list[str], message: str) -> None:
    project("small")
    done = run(*arguments)
    assert done.returncode == 3
    assert message in done.stderr
    assert "Traceback" not in done.stderr
