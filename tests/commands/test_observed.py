"""`pv check -- COMMAND`: exit codes, refusals, traces, formats, and a script that is left as it is."""

import html
import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest
from junitparser import Failure, JUnitXml

import pv
from pv.cli.check import check as check_command
from pv.commands.base_report import read_reports
from pv.engines.failures import FailureClassifier
from pv.engines.run import engine, reference_run
from pv.engines.run.engine import RunPayload
from pv.errors import UsageError
from pv.report import render
from pv.results.saved.report import load
from tests.commands.checked import checked
from tests.commands.small import run
from tests.pages import BLOCK
from tests.report.test_sarif import SCHEMA as SARIF
from tests.support.processes import Ended, python

CORRECT = """
import os
import signal
import sys
import torch
from torch.nn import functional as F

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
for step in range(6):
    optimizer.zero_grad()
    sizes = (7, 5) if step < 5 else (7,)
    for size in sizes:
        x, y = torch.randn(size, 6), torch.randint(8, (size,))
        (F.cross_entropy(model(x), y, reduction="sum") / sum(sizes)).backward()
    optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in model.parameters())))
sys.exit(0)
"""
NEVER_CLEARED = CORRECT.replace("    optimizer.zero_grad()\n", "")


def ending(statement: str) -> str:
    """Return the correct script with another end."""
    return CORRECT.replace("sys.exit(0)", statement)


def check(folder: Path, script: str, *options: str) -> Ended:
    """Run `pv check OPTIONS -- python train.py` in a folder with this script, both in forks with torch loaded."""
    (folder / "train.py").write_text(script)
    return checked(folder, *options, "--", sys.executable, "train.py")


def test_a_correct_script_passes_with_its_own_output_and_weights(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(CORRECT)
    command = ["check", "--trace", "trace", "-v", "--", sys.executable, "train.py"]
    ended = python("-m", "pv", *command, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert python("train.py", cwd=tmp_path).stdout.splitlines()[-1] in ended.stdout.splitlines()
    last = ended.stdout.splitlines()[-1]
    assert last.endswith("6 steps on 1 process; token weights audited in 6 of 6 steps; exit 0")
    assert "held        TR-WEIGHT-002" in ended.stdout
    assert "   1              2        12      12" in ended.stdout
    assert "not reached TR-CLIP-001, -003: no gradient was clipped" in ended.stdout
    (trace,) = (tmp_path / "trace").glob("*.jsonl")
    schema = json.loads((Path(pv.__file__).parent / "observe/trace.schema.json").read_text())
    events = [json.loads(line) for line in trace.read_text().splitlines()]
    for event in events:
        jsonschema.validate(event, schema)
    assert not [event for event in events if event["event"] == "trouble"]
    again = run("check", "--trace", str(tmp_path / "trace"))
    assert (again.returncode, "6 steps on 1 process" in again.stdout) == (0, True)


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ended]:
    """The folder with the trace and every report of a script that never clears its gradient, and what was printed."""
    folder = tmp_path_factory.mktemp("faulty")
    outputs = [f"--output={form}=r.{form}" for form in ("json", "sarif", "html", "markdown", "junit")]
    return folder, check(folder, NEVER_CLEARED, "--trace", "trace", *outputs)


PARTS = ("train.py", "the gradient of step 2 still contains 2 backward passes", "call optimizer.zero_grad() once")
OF_ATTACKS = ("predicted:", ">predicted<", "if this fails", "falsifiers", "on cpu", "[cpu]", "not claimed", "no device")
"""Words about attacks on claims, which have no place in a report of a script: it decides itself where it runs."""


@pytest.mark.parametrize("form", ["sarif", "html", "markdown", "junit"])
def test_every_format_names_the_fault_and_its_change_without_words_of_attacks(
    faulty: tuple[Path, Ended], form: str
) -> None:
    folder, ended = faulty
    shown = html.unescape((folder / f"r.{form}").read_text()).replace("\\", "")
    assert [part for part in PARTS if part not in shown] == []
    assert [word for word in OF_ATTACKS if word in shown.lower()] == []
    assert form in ("sarif", "junit") or ended.stdout.splitlines()[-1] in shown


def test_a_fault_is_named_with_its_line_and_saved_with_the_steps(faulty: tuple[Path, Ended]) -> None:
    folder, ended = faulty
    assert ended.returncode == 1
    assert "FALSIFIED   TR-GRAD-001  train.py:16" in ended.stdout
    assert "the gradient of step 2 still contains 2 backward passes that step 1 or an earlier" in ended.stdout
    assert PARTS[-1] in ended.stdout
    report = load(folder / "r.json")
    steps = [(s.step, s.micro_batches, s.examples, s.scored) for s in report.steps]
    assert steps[:2] == [(1, 2, 12, 12), (2, 4, 24, 24)]
    assert "| 1 | 2 | 12 | 12 |" in (folder / "r.markdown").read_text()
    assert render(report, "html").count("<polyline") == (folder / "r.html").read_text().count("<polyline") == 4
    (contract,) = json.loads((folder / "r.json").read_text())["contracts"]
    outcomes = {result["falsifier"]: result["outcome"] for result in contract["results"]}
    expected = {"TR-GRAD-001": "falsified", "TR-GRAD-002": "held", "TR-CLIP-001": "not claimed"}
    assert outcomes.items() >= expected.items()
    assert f"  rerun     pv check -- {sys.executable} train.py\n" in pv.render(
        read_reports([folder / "r.json"], partial=True)
    )
    observed = pv.check_run(trace=folder / "trace")
    assert "FALSIFIED   TR-GRAD-001  train.py:16" in str(observed) and str(observed).endswith("exit 1")
    assert repr(observed) == f"<ObservedRun: {ended.stdout.splitlines()[-1]}>"


def test_steps_of_a_report_have_the_means_and_largest_values_of_the_trace(
    faulty: tuple[Path, Ended], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (trace,) = (faulty[0] / "trace").glob("*.jsonl")
    text = trace.read_text().replace('"rates":[0.01],"norm"', '"rates":[0.01,0.001],"norm"')
    start, _, end = text.rpartition('"losses":[{')
    (tmp_path / trace.name).write_text(start + '"losses":[]' + end[end.index(',"logits"') :])
    monkeypatch.setattr("pv.commands.observed.MAX_STEPS", 4)
    observed = pv.check_run(trace=tmp_path)
    assert observed.audited == (5, 6), "the last backward pass has no known loss"
    assert [(step.step, step.rate) for step in observed.report.steps] == [(1, 0.01), (3, 0.01), (5, 0.01)]
    assert 1 < observed.report.steps[1].loss < 3, "the mean of losses that are sums"


def test_steps_before_the_failure_of_a_command_in_a_contract_are_judged(
    faulty: tuple[Path, Ended], tmp_path: Path
) -> None:
    shutil.copytree(faulty[0] / "trace", tmp_path / reference_run.OBSERVED)
    (tmp_path / reference_run.TRACE).touch()
    reference_run.RunFolder(tmp_path, "cpu", {}).end({"output": ""}, "it ended with status 1")
    worker: Any = SimpleNamespace(failures=FailureClassifier(tmp_path, []))
    payloads = {
        id_: RunPayload(directory=str(tmp_path), arguments={}, observed=id_) for id_ in ("TR-GRAD-001", "TR-GRAD-002")
    }
    statuses = {id_: engine._judge_trace(payload, worker)["status"] for id_, payload in payloads.items()}
    assert statuses == {"TR-GRAD-001": "refuted", "TR-GRAD-002": "skipped"}


def test_readers_of_junit_and_sarif_get_the_line_of_the_fault(faulty: tuple[Path, Ended]) -> None:
    folder, _ = faulty
    ((name, case),) = failures(folder / "r.junit").items()
    assert (name, case._elem.get("file"), case._elem.get("line")) == ("TR-GRAD-001", "train.py", "16")
    log = json.loads((folder / "r.sarif").read_text())
    jsonschema.Draft4Validator(SARIF).validate(log)
    (result,) = log["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == ("train.py", 16)


def failures(junit: Path) -> dict[str, Any]:
    """Return the failed cases of a JUnit report by name."""
    (suite,) = JUnitXml.fromstring(junit.read_bytes())
    return {case.name: case for case in suite if any(isinstance(result, Failure) for result in case.result)}


def test_a_command_that_fails_is_undecided_and_one_that_takes_no_step_too(tmp_path: Path) -> None:
    failed = check(tmp_path, ending("os._exit(5)"), "--output=junit=r.junit", "--output=json=r.json")
    assert failed.returncode == 2
    assert "note: the command ended with status 5" in failed.stdout
    assert "6 steps on 1 process" in failed.stdout  # `os._exit` loses no step
    # Every format agrees with the exit code.
    messages = [case.result[0].message for case in failures(tmp_path / "r.junit").values()]
    assert messages == ["the command ended with status 5"]
    assert json.loads((tmp_path / "r.json").read_text())["exit_code"] == 2
    idle = check(tmp_path, "print('nothing')\n")
    assert idle.returncode == 2
    assert "no optimizer step was observed" in idle.stdout
    assert "token weights" not in idle.stdout


def test_commands_and_code_of_the_page_are_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs/observe.md").read_text()
    blocks = [(language, body) for language, _, body in BLOCK.findall(page)]
    lines = [line for language, body in blocks if language == "sh" for line in body.splitlines()]
    commands = [shlex.split(line, comments=True) for line in lines if line.startswith("pv check")]
    assert len(commands) >= 6
    for words in commands:
        context = check_command.make_context("check", words[2:])
        assert (context.obj or context.params["trace"]) and context.params["subject"] is None, words
    (code,) = [body for language, body in blocks if language == "python"]
    (tmp_path / "train.py").write_text(CORRECT)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(code, names)
    names["test_the_script_trains_correctly"]()


def test_interrupted_run_is_judged_by_its_observed_steps(tmp_path: Path) -> None:
    # The script interrupts its process group, which pv check is in, as Ctrl-C in a terminal does.
    script = NEVER_CLEARED.replace("print(", "os.killpg(0, signal.SIGINT)\nsignal.pause()\nprint(")
    (tmp_path / "train.py").write_text(script)
    command = [sys.executable, "-m", "pv", "check", "--", sys.executable, "train.py"]
    ended = subprocess.run(
        command,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert ended.returncode == 1
    assert "note: the command was interrupted: only the steps until then are judged" in ended.stdout
    assert "1 falsified" in ended.stdout
    assert "6 steps on 1 process" in ended.stdout


@pytest.mark.parametrize(
    ("statement", "status", "notes"),
    [
        # A process that a signal kills loses the steps since the last flush.
        (
            "os.kill(os.getpid(), signal.SIGKILL)",
            2,
            ["status 137 (SIGKILL)", "1 process ended before the end of the trace"],
        ),
        ("os._exit(0) if os.fork() == 0 else os._exit(0)", 0, ["6 steps on 1 process"]),
    ],
)
def test_run_without_a_regular_end_is_judged_with_a_note(
    statement: str, status: int, notes: list[str], tmp_path: Path
) -> None:
    ended = check(tmp_path, ending(statement))
    assert ended.returncode == status, ended.stdout + ended.stderr
    assert [note for note in notes if note not in ended.stdout] == []


def test_only_the_chosen_claims_are_judged_and_reported(faulty: tuple[Path, Ended]) -> None:
    trace = ("check", "--trace", str(faulty[0] / "trace"), "--only")
    chosen = run(*trace, "weight", "--only", "TR-NAN-*", "-v")
    assert chosen.returncode == 0 and "TR-GRAD" not in chosen.stdout
    assert re.search(r"\n3 held, 0 falsified, \d+ not reached; ", chosen.stdout)
    again = run(*trace, "GRAD", "--format", "json")
    assert again.returncode == 1
    (contract,) = json.loads(again.stdout)["contracts"]
    assert {result["falsifier"].rpartition("-")[0] for result in contract["results"]} == {"TR-GRAD"}
    assert contract["results"][0]["repeat"] == f"pv check --only GRAD --trace {trace[2]}"
    untried = run(*trace, "TR-CLIP-001")
    assert (untried.returncode, "0 held, 0 falsified, 1 not reached" in untried.stdout) == (2, True)
    with pytest.raises(UsageError, match=r"--only GRID matches no claim: did you mean 'GRAD'"):
        pv.check_run(trace=faulty[0] / "trace", only=["GRID"])


def test_a_limit_of_steps_ends_the_run_without_a_failure_also_of_chosen_claims(tmp_path: Path) -> None:
    ended = check(tmp_path, ending("sys.exit(7)"), "--steps", "2", "--only", "weight", "-v")
    assert ended.returncode == 0
    assert "2 steps on 1 process" in ended.stdout
    assert "sum" not in ended.stdout and "TR-GRAD" not in ended.stdout
    script = Path(__file__).parents[1] / "observe" / "scripts" / "updates_by_statements.py"
    assert "3 steps on 1 process" in check(tmp_path, script.read_text(), "--steps", "3").stdout


RESUMED = """
import os
import re
import sys
import time
from pathlib import Path

import torch
from torch.nn import functional as F

out = sys.argv[1]
Path(out, "pid").open("a").write(f"{os.getpid()}\\n")
torch.manual_seed(0)
model = torch.nn.Linear(6, 8)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
begin = 0
if "--resume" in sys.argv:
    state = torch.load(sys.argv[3])
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    begin = state["step"]
for step in range(begin + 1, 9):
    generator = torch.Generator().manual_seed(step)
    x, y = torch.randn(5, 6, generator=generator), torch.randint(8, (5,), generator=generator)
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
    if step % 3 == 0:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        torch.save(state, f"{out}/new.pt")
        os.replace(f"{out}/new.pt", f"{out}/last.pt")
"""


def resume(folder: Path, script: str, *options: str, out: str = "{out}") -> Ended:
    """Run `pv check OPTIONS --resume ... -- python train.py OUT` in a folder with this script."""
    (folder / "train.py").write_text(script)
    command = ("--", sys.executable, "train.py", out)
    return checked(folder, *options, "--resume", f"--resume {out}/last.pt", *command)


def test_a_killed_run_that_is_resumed_exactly_passes_and_the_working_folder_is_left_alone(tmp_path: Path) -> None:
    longer = RESUMED.replace("begin + 1, 9", "begin + 1, 12")
    ended = resume(tmp_path, longer, "--cut", "4", "--cut", "7", "--cut", "10", "-v", out=".")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    held = "held        TR-RESUME-001: A resumed run starts with the saved weights (tried 3 times)"
    assert held in ended.stdout
    assert "held        TR-RESUME-007" in ended.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


def test_state_lost_on_resume_is_named_live_and_from_saved_traces(tmp_path: Path) -> None:
    lost = RESUMED.replace('    optimizer.load_state_dict(state["optimizer"])\n', "")
    ended = resume(tmp_path, lost, "--cut", "5", "--in-save", "--trace", "trace")
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "FALSIFIED   TR-RESUME-005  train.py:19" in ended.stdout
    assert "killed after step 5 and was resumed from the save after step 3" in ended.stdout
    assert "1 falsified" in ended.stdout
    again = run("check", "--trace", str(tmp_path / "trace"), "-v")
    assert again.returncode == 1
    assert "FALSIFIED   TR-RESUME-005  train.py:19" in again.stdout
    assert "held        TR-RESUME-009: A run that is killed inside a save can be resumed (tried 1 time)" in again.stdout


@pytest.mark.parametrize(
    ("cuts", "says"),
    [
        (["2"], "--cut 2: nothing is saved before this step; the first save is after step 3: use --cut 4 or more"),
        (
            ["4", "5"],
            "--cut 5: nothing is saved after step 3 and before this step; "
            "the next save is after step 6: use --cut 7 or more",
        ),
    ],
)
def test_a_run_that_saves_nothing_before_it_is_killed_is_refused_with_the_first_save(
    cuts: list[str], says: str, tmp_path: Path
) -> None:
    ended = resume(tmp_path, RESUMED, *(word for cut in cuts for word in ("--cut", cut)))
    assert (ended.returncode, says in ended.stderr) == (3, True), ended.stderr


REFUSED = {
    "adapter:Adapter -- python train.py": "SUBJECT has no effect with a command",
    "--suite optimizer -- python train.py": "--suite has no effect with a command",
    "--replay {} -- python train.py": "--replay has no effect with a command",
    "--spawn -- python train.py": "--spawn has no effect with a command",
    "adapter:Adapter --steps 3": "--steps has no effect with a SUBJECT",
    "adapter:Adapter --cut 3 --resume x": "--cut has no effect with a SUBJECT",
    "--": "no command after --",
    "": "missing SUBJECT or a command",
    "-- no-such-command": "command not found: no-such-command",
    "-- train.py --epochs 1": "command not found: train.py; try pv check -- python train.py --epochs 1",
    "train.py": "the command comes after --: pv check -- python train.py",
    "--hints python train.py": "the command comes after --: pv check --hints -- python train.py",
    "--steps 3 torchrun train.py": "the command comes after --: pv check --steps 3 -- torchrun train.py",
    "--cut=3 --hints accelerate launch train.py --lr 1": (
        "the command comes after --: pv check --cut=3 --hints -- accelerate launch train.py --lr 1"
    ),
    "env A=1 python t.py": "the command comes after --: pv check -- env A=1 python t.py",
    "bin/train.sh": "the command comes after --: pv check -- bash bin/train.sh",
    "accelerate run t.py": "the command comes after --: pv check -- accelerate run t.py",
    "env --steps=3": "--steps has no effect with a SUBJECT",
    "--trace /dev/null/a -- python": "cannot write traces into /dev/null/a: Not a directory",
    "--trace nowhere": "no such folder of traces: nowhere",
    "--trace .": "no trace in .: record one with pv check --trace . -- python train.py",
    "--cut 3 -- python train.py": "--cut and --extend need --resume",
    "--resume x -- python train.py": "--resume needs --cut K",
    "--in-save --extend x --resume x -- python train.py": "--in-save needs --cut K",
    "--cut 5 --cut 3 --resume x -- python train.py": "in ascending order",
    "--cut 5 --resume {out} -- python train.py": "{out} is in --resume and not in the command",
    "--cut 5 --resume x --trace .": "--cut has no effect without a command",
    "--against x --trace .": "--against has no effect without a command",
    "--suite training-run adapter:Adapter": "pv check -- python train.py",
}


@pytest.mark.parametrize("arguments", REFUSED)
@pytest.mark.usefixtures("empty")
def test_options_without_effect_are_refused(arguments: str) -> None:
    ended = run("check", *arguments.split())
    assert (ended.returncode, REFUSED[arguments] in ended.stderr) == (3, True), ended.stderr


@pytest.mark.parametrize(("arguments", "message"), [(["--stps", "3"], "--stps"), ([], "no command after --")])
def test_a_wrong_call_of_the_observer_is_refused(arguments: list[str], message: str) -> None:
    ended = python("-m", "pv.observe", *arguments)
    assert (ended.returncode, message in ended.stderr) == (3, True), ended.stderr


def test_a_trace_of_another_version_is_refused_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "trace-1-0-1.jsonl").write_text('{"event":"start","n":-1,"schema":"pv-trace/9"}\n')
    with pytest.raises(UsageError, match=r"trace-1-0-1.jsonl:1: unknown trace schema 'pv-trace/9'"):
        pv.check_run(trace=tmp_path)
    for line in (b'{"event', b"5", b"{}", b'"\xff"', b"[" * 100_000):
        (tmp_path / "trace-1-0-1.jsonl").write_bytes(b'{"event":"start","n":-1,"schema":"pv-trace/1"}\n%s\n' % line)
        with pytest.raises(UsageError, match=r"trace-1-0-1.jsonl:2: not a trace"):
            pv.check_run(trace=tmp_path)


LANGUAGE_MODEL = """
import atexit, threading, time
import torch
from torch.nn import functional as F

torch.manual_seed(0)
embed, head = torch.nn.Embedding(9, 8), torch.nn.Linear(8, 9)
CALLS = 99
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head, self.calls = embed, head, 0
    def forward(self, x):
        self.calls += 1
        print("call", self.calls)
        if self.calls > CALLS:
            raise ValueError("no more calls")
        return self.head(self.embed(x).cumsum(1))
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
atexit.register(print, "the end")
# start
for step in range(4):
    x = torch.randint(9, (4, 9))
    loss = F.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in model.parameters())), torch.rand(1).item())
"""


@pytest.fixture(scope="module")
def plain_lines(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What the script prints by itself."""
    (path := tmp_path_factory.mktemp("plain") / "train.py").write_text(LANGUAGE_MODEL)
    return python(str(path)).stdout.splitlines()


THREAD = "threading.Thread(target=time.sleep, args=(9,), daemon=True, name='mine').start()"


def test_probes_leave_the_process_alone(plain_lines: list[str], tmp_path: Path) -> None:
    """In an interpreter of its own, whose functions of `atexit` run once."""
    (tmp_path / "train.py").write_text(LANGUAGE_MODEL)
    ended = python("-m", "pv", "check", "-v", "--", sys.executable, "train.py", cwd=tmp_path)
    assert "held        TR-PROBE-001" in ended.stdout
    assert not ended.stderr
    assert ended.stdout.splitlines()[: len(plain_lines)] == plain_lines


@pytest.mark.parametrize(
    ("options", "calls", "start", "result"),
    [
        (["--no-probes"], 99, "", "not reached TR-PROBE-001, -002, -003, -004: probes are switched off"),
        ([], 99, THREAD, "threads cannot be copied: mine"),
        ([], 4, "", "not reached TR-PROBE-001"),
    ],
)
def test_process_that_cannot_be_probed_is_left_alone_and_the_reason_is_given(
    plain_lines: list[str], options: list[str], calls: int, start: str, result: str, tmp_path: Path
) -> None:
    """The model refuses more calls than `calls`: the fifth is one of a probe."""
    script = LANGUAGE_MODEL.replace("CALLS = 99", f"CALLS = {calls}").replace("# start", start)
    ended = check(tmp_path, script, "-v", *options)
    assert result in ended.stdout
    assert not ended.stderr
    *lines, _ = plain_lines  # a fork runs no function of `atexit`
    assert ended.stdout.splitlines()[: len(lines)] == lines


def test_a_probe_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pv.observe import probes

    monkeypatch.setattr(probes, "LIMIT_SECONDS", 0.2)
    monkeypatch.setattr(probes, "_isolate", lambda: None)

    def hang(send: Callable[[Any], None]) -> None:
        send({"a": 1})
        signal.pause()

    lines, reason = probes._in_copy(hang)
    assert lines == [{"a": 1}]
    assert "did not end by itself within 0.2 s" in reason
