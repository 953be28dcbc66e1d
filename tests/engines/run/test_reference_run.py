"""A run leaves its arguments, its result and its trace in a directory, from which predicates read them."""

import re
from pathlib import Path

import pytest
import torch

from pv.engines.run import reference_run
from pv.engines.run.reference_run import RunFolder, RunRecord


def test_second_attempt_starts_with_an_empty_directory(tmp_path: Path) -> None:
    stale = tmp_path / "run" / "files" / "stale.bin"
    stale.parent.mkdir(parents=True)
    stale.write_bytes(b"s")
    reference_run.execute(lambda *_, **__: {}, "s", RunFolder(tmp_path / "run", "cpu", {"steps": 0}))
    assert not stale.exists()


def test_a_run_that_changes_its_arguments_changes_no_recorded_ones(tmp_path: Path) -> None:
    record = RunFolder(tmp_path / "run", "cpu", {"sizes": [4, 8]})
    reference_run.execute(lambda *_, sizes, **__: sizes.pop(), "s", record)
    assert reference_run.read(tmp_path / "run").arguments == record.arguments == {"sizes": [4, 8]}


RECORDED = RunRecord(arguments={}, device="cpu", directory=Path(), result=None, trace=(), observed=None, failure="")
NOT_JSON = {
    "result is a object, which JSON cannot represent: return text, numbers, booleans, None, lists": object(),
    "result['loss'] is a Tensor, which JSON cannot represent: return `result['loss'].item()`": {
        "loss": torch.tensor(1.0)
    },
    "result['parts'][1] is a Tensor, which JSON cannot represent: return `result['parts'][1].tolist()`": {
        "parts": [1, torch.ones(2)]
    },
    "result is a Tensor, which JSON cannot represent: return `result.item()`": torch.ones(1),
    "result[1] is a RunRecord, which JSON cannot represent: return `dataclasses.asdict(result[1])`": (0, RECORDED),
    "result['at'] is a PosixPath, which JSON cannot represent: return `str(result['at'])`": {"at": Path("a")},
    "the key (1, 2) of result is a tuple, which JSON cannot represent": {(1, 2): 0},
    "result['seen'] is a set, which JSON cannot represent: return `sorted(result['seen'])`": {"seen": {1, 2}},
}


@pytest.mark.parametrize("says", NOT_JSON)
def test_result_that_is_not_json_is_refused_with_a_conversion(tmp_path: Path, says: str) -> None:
    result = NOT_JSON[says]
    with pytest.raises(TypeError, match=re.escape(says)):
        reference_run.execute(lambda *_, **__: result, "s", RunFolder(tmp_path / "run", "cpu", {}))
    assert not (tmp_path / "run" / reference_run.RESULT).exists()


def test_command_that_fails_leaves_its_output_and_the_reason(tmp_path: Path) -> None:
    # The script prints its variable and arguments, then fails with a message that looks like a placeholder.
    script = "import os, sys; print(os.environ['A'], *sys.argv[1:]); sys.exit('no {x}')"
    command = ["python", "-c", script, "{n}", "{text}", "{unknown}", "{directory}"]
    record = RunFolder(tmp_path, "cpu", {"n": [3, True], "text": "a b"})
    reference_run.execute_command(command, {"A": "1", "PATH": "/nowhere"}, record)
    run = reference_run.read(tmp_path)
    assert run.result == {"output": f"1 [3, true] a b {{unknown}} {run.directory}\nno {{x}}\n"}
    assert run.failure.endswith("ended with status 1: no {x}") and run.trace == () and run.observed.processes == ()
    reference_run.execute_command(["no-such-program"], {}, record)
    assert reference_run.read(tmp_path).failure == "cannot run no-such-program: No such file or directory"
    new = RunFolder(tmp_path / "new", "cpu", {})
    reference_run.execute_command(["no-such-program"], {}, new)
    not_started = reference_run.read(new.directory)
    assert not_started.failure == "cannot run no-such-program: No such file or directory"
    assert (not_started.trace, not_started.observed.processes) == ((), ())
