"""`pv new --trainer` writes an adapter, which is undecided until it is filled in."""

import ast
import importlib
import json
import shlex
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

import pv
from pv.commands.naming import same_claims
from pv.commands.new_adapter import Loop, call_of
from pv.contract.suites import suites
from pv.results.outcome import Outcome
from pv.suites.training_loop.adapters.handwritten import Placeholder
from pv.suites.training_loop.job import Job
from pv.suites.training_run.attacks.drawn import Plan, numbered, traces
from tests.commands.small import edit, outcomes, run
from tests.support.projects import write

EXAMPLE = Path(__file__).parents[2] / "docs/examples/train.py"
FEW = ["TL-DATA-001", "TL-GRAD-001", "TL-EVAL-001", "TL-RESUME-001"]
ROWS = """[
            (list(each.tokens[:-1]), [-1 if label == -100 else label for label in each.labels[1:]])
            for each in {examples}
        ]"""
MODEL = """
from torch.nn import Module
from torch.nn.functional import cross_entropy


class Model(Module):
    def __init__(self, probe):
        super().__init__()
        self.probe = probe

    def forward(self, x, y):
        logits = self.probe(x)
        return logits, cross_entropy(logits.flatten(0, 1), y.flatten(), ignore_index=-1, reduction="sum")
"""


@pytest.fixture
def folder(empty: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copy(EXAMPLE, empty / "train.py")
    monkeypatch.syspath_prepend(str(empty))
    return empty


def test_new_adapter_is_undecided_until_it_is_filled_in(folder: Path) -> None:
    written = run("new", "--trainer", "train:Loop")
    assert written.returncode == 0 and written.stdout.endswith("next: pv check train_adapter:Adapter\n")
    unfilled = outcomes(pv.check("train_adapter:Adapter", only=FEW, jobs=1))
    assert set(unfilled.values()) <= {Outcome.UNDECIDED, Outcome.NOT_CLAIMED} and Outcome.UNDECIDED in unfilled.values()


@pytest.mark.parametrize(("imported", "name"), [("Loop as Trainer", "Trainer"), ("*", "Loop")])
def test_loop_that_a_package_imports_is_read_where_it_is_defined(folder: Path, imported: str, name: str) -> None:
    (folder / "loops").mkdir()
    (folder / "train.py").rename(folder / "loops" / "train.py")
    (folder / "loops" / "__init__.py").write_text(f"from .train import {imported}\n")
    written = run("new", "--trainer", f"loops:{name}")
    assert written.returncode == 0 and written.stdout.startswith("wrote loops/train_adapter.py\n"), written.stdout
    assert "from loops.train import Config, Loop\n" in (folder / "loops" / "train_adapter.py").read_text()


CASES = yaml.safe_load(Path(__file__).with_name("adapters.yaml").read_text())


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_adapter_follows_the_source_of_the_loop(empty: Path, case: dict[str, Any]) -> None:
    write(empty, {"loops.py": case["code"], **case.get("files", {})})
    ended = run("new", "--trainer", case["loop"])
    if refusal := case.get("says"):
        assert ended.returncode == 3 and refusal in ended.stderr
        return
    lines = (empty / "loops_adapter.py").read_text().splitlines()
    text = "".join("".join(lines).split())
    assert [part for part in case["shows"] if "".join(part.split()) not in text] == []
    assert [part for part in case.get("lacks", ()) if "".join(part.split()) in text] == []
    places = [f"  loops_adapter.py:{n}  " for n, line in enumerate(lines, 1) if 'fill_in("' in line]
    assert [place for place in places if place not in ended.stdout] == []


def written_adapter(folder: Path, case: dict[str, Any], **filled: str) -> Any:
    """Write an adapter of the loop in a case, fill its places in, and return its class."""
    write(folder, {"loops.py": case["code"], **case.get("files", {})})
    assert run("new", "--trainer", case["loop"]).returncode == 0
    for name, text in filled.items():
        edit(folder / "loops_adapter.py", f'fill_in("{name}")', text)
    # Modules of an earlier test with the same names.
    for name in ("loops", "loops_adapter", "model"):
        sys.modules.pop(name, None)
    return importlib.import_module("loops_adapter").Adapter


def test_class_that_trains_in_one_call_is_called_so(folder: Path) -> None:
    adapter = written_adapter(folder, CASES["a class that trains in one call"], rows="job.train")()
    assert adapter.run(Job(directory=folder, train=())).final_step == 0


def test_adapter_raises_for_jobs_whose_parts_are_not_filled_in(folder: Path) -> None:
    case = CASES["settings are not arguments of the model, and parts of a class are not missing"]
    adapter = written_adapter(folder, case)()
    job = Job(directory=folder, train=(), max_steps=5)
    assert adapter.run(job).final_step == 0
    for other in (replace(job, eval_every=1), replace(job, save_every=1)):
        with pytest.raises(Placeholder):
            adapter.run(other)


def test_filled_in_adapter_of_a_function_holds_and_a_fault_is_seen(folder: Path) -> None:
    run("new", "--trainer", "train:train")
    path = folder / "train_adapter.py"
    text = path.read_text().replace("model=model,", "model=Model(model),").replace("\n\nclass", f"{MODEL}\n\nclass", 1)
    text = text.replace('fill_in("data")', ROWS.format(examples="job.train")).replace('fill_in("held")', "[]")
    path.write_text(text)
    filled = outcomes(pv.check("train_adapter:Adapter", only=FEW, jobs=1))
    assert [filled[claim] for claim in FEW[:2]] == [Outcome.HELD, Outcome.HELD]
    assert [filled[claim] for claim in FEW[2:]] == [Outcome.NOT_CLAIMED, Outcome.NOT_CLAIMED]
    edit(folder / "train.py", "loss / max(scored, 1)", "loss / max(int((y != -1).sum()), 1)")
    assert outcomes(pv.check("train_adapter:Adapter", only=FEW, jobs=1))["TL-GRAD-001"] is Outcome.FALSIFIED


def test_command_that_a_failed_claim_prints_replays_its_example(folder: Path) -> None:
    shutil.copy(EXAMPLE.with_name("train_adapter.py"), folder)
    wrong = "loss / max(int((y != -1).sum()), 1) / len(batches)"
    edit(folder / "train.py", "loss / max(scored, 1)", wrong)
    text = pv.render(pv.check("train_adapter:Adapter", only=["TL-GRAD-002"], jobs=1))
    (printed,) = {line.split("pv ", 1)[1] for line in text.splitlines() if line.startswith("  replay ")}
    done = run(*shlex.split(printed))
    assert done.returncode == 1 and "FALSIFIED  TL-GRAD-002" in done.stdout
    (again,) = (line for line in done.stdout.splitlines() if line.startswith("  rerun "))
    assert "--replay" in again


PARAMETERS = yaml.safe_load(Path(__file__).with_name("parameters.yaml").read_text())


@pytest.mark.parametrize(("parameter", "value"), PARAMETERS.items())
def test_parameter_takes_the_setting_that_it_is_named_for(parameter: str, value: str) -> None:
    (node,) = ast.parse(f"def fit(model, *, {parameter}, data): ...").body
    call = call_of(Loop(node, {}), "fit", {"job": "job", "model": "model"})
    assert call.text == f'fit(model=model, {parameter.split("=")[0].split(":")[0]}={value}, data=fill_in("data"))'


def test_new_adapter_with_a_trace_lists_the_claims_that_the_run_passed(folder: Path) -> None:
    trace = folder / "trace"
    trace.mkdir()
    epoch = (((7,), (5,)), ((6,), (8,)), ((9,),))
    (events,) = traces(Plan((epoch, epoch), scale=1.0, clip=False, logits=False, stream=False))
    (trace / "trace-1-0-1.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in numbered(events)))
    output = run("new", "--trainer", "train:Loop", "--trace", "trace").stdout
    assert "has passed, and the adapter tries on more jobs: TR-GRAD-001 (as TL-GRAD-001), TR-GRAD-002, " in output
    refused = run("new", "--trainer", "train:train", "--trace", "nowhere")
    assert refused.returncode == 3 and "no such folder of traces" in refused.stderr


def test_claims_that_say_the_same_exist_and_are_shown_from_both_sides(folder: Path) -> None:
    loops = {claim.id for path in [suites()["training-loop"]] for claim in pv.load([path]).contracts[0].claims}
    same = same_claims()
    assert {claim for ids in same.values() for claim in ids} <= loops
    assert "same as     TL-GRAD-002, about every job" in run("explain", "TR-WEIGHT-001").stdout
    assert "same as     TR-WEIGHT-001, about one run" in run("explain", "TL-GRAD-002").stdout


SETTINGS = """
from dataclasses import dataclass

@dataclass
class RunConfig:
    lr: float = 0.1
    note: object = None
"""
TAKING = "class RunConfig:\n    def __init__(self, lr, depth): ...\n"
CREATED = "settings(RunConfig, job)"


@pytest.mark.parametrize(
    ("parameter", "settings", "value"),
    [
        *((code, SETTINGS, CREATED) for code in ("cfg=RunConfig()", "run=RunConfig()", "config", "train_args")),
        *((code, SETTINGS, CREATED) for code in ("run: 'RunConfig'", "run: RunConfig | None = None")),
        ("config", TAKING, "settings(RunConfig, job, depth=fill_in("),
        ("config", "class RunConfig:\n    lr = 0.1\n", CREATED),
        ("config", f"{SETTINGS}\nclass DataConfig: ...\n", CREATED),
        ("config", f"{SETTINGS}\n{SETTINGS.replace('Run', 'Data')}", 'fill_in("config")'),
        ("note=RunConfig", SETTINGS, ""),
    ],
)
@pytest.mark.parametrize("imported", [False, True])
def test_settings_of_a_loop_are_found(empty: Path, parameter: str, settings: str, value: str, imported: bool) -> None:
    names = f"from settings import {'DataConfig, ' if 'DataConfig' in settings else ''}RunConfig"
    loops = f"{names if imported else settings}\n\ndef fit(model, {parameter}): ...\n"
    write(empty, {"settings.py": settings, "loops.py": loops})
    assert run("new", "--trainer", "loops:fit").returncode == 0
    text = (empty / "loops_adapter.py").read_text()
    name = parameter.split("=")[0].split(":")[0]
    assert f"fit(model=model, {name}={value}" in text if value else "RunConfig" not in text
    assert ("from loops import RunConfig, fit" in text) is value.startswith("settings(")


PARTS = """
class Loop:
    def __init__(self, model, {}):
        self.optimizer, self.{} = None, None

    def train_step(self, window):
        self.loss {} 1.0
"""


@pytest.mark.parametrize(
    ("parts", "logged", "own_loss", "without"),
    [
        (("epochs", "other", "="), ("loss", "rate"), True, ("max_steps",)),
        (("max_steps", "scheduler", "="), ("loss",), True, ("epochs",)),
        (("epochs, max_steps", "scheduler", "+="), (), False, ()),
    ],
)
def test_adapter_declares_the_features_of_the_loop(
    folder: Path, parts: Any, logged: Any, own_loss: bool, without: Any
) -> None:
    adapter = written_adapter(folder, {"code": PARTS.format(*parts), "loop": "loops:Loop"})
    present = {name for name, value in adapter.features.items() if value is True}
    assert (present, adapter.features.keys() - present) == ({*logged}, {*without})
    assert set(adapter.not_claimed) == ({"TL-LOG-003", "TL-LOG-004", "TL-LOG-005"} if own_loss else set())
