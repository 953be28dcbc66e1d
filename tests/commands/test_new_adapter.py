"""`pv new --trainer` writes an adapter, which is undecided until it is filled in."""

import ast
import importlib
import json
import re
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
from pv.commands.new_adapter import Loop, called
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


def test_what_the_source_does_not_tell_leaves_every_claim_undecided(folder: Path) -> None:
    written = run("new", "--trainer", "train:Loop")
    assert written.returncode == 0 and written.stdout.endswith("next: pv check train_adapter:Adapter\n")
    found = outcomes(pv.check("train_adapter:Adapter", only=FEW, jobs=1))
    assert set(found.values()) <= {Outcome.UNDECIDED, Outcome.NOT_CLAIMED} and Outcome.UNDECIDED in found.values()


@pytest.mark.parametrize(("imported", "name"), [("Loop as Trainer", "Trainer"), ("*", "Loop")])
def test_loop_that_a_package_imports_is_read_where_it_is_defined(folder: Path, imported: str, name: str) -> None:
    (folder / "loops").mkdir()
    (folder / "train.py").rename(folder / "loops" / "train.py")
    (folder / "loops" / "__init__.py").write_text(f"from .train import {imported}\n")
    written = run("new", "--trainer", f"loops:{name}")
    assert written.returncode == 0 and written.stdout.startswith("wrote loops/train_adapter.py\n"), written.stdout
    assert "from loops.train import Config, Loop\n" in (folder / "loops" / "train_adapter.py").read_text()


FITTING = """
from dataclasses import dataclass

from torch import nn, optim


@dataclass
class ModelConfig:
    width: int = 4


@dataclass
class TrainConfig:
    out_dir: str
    lr: float
    batch_size: int
    epochs: int
    max_steps: int | None
    save_every: int = 10


class Trainer:
    def __init__(self, cfg, model, rows):
        self.cfg, self.model, self.rows, self.step = cfg, model, rows, 0

    def train_step(self, batch):
        self.step += 1

    def fit(self, until=None):
        assert self.cfg.out_dir == str(self.cfg.out_dir) and self.cfg.save_every == 10**9
"""


def test_class_that_trains_in_one_call_is_called_so(folder: Path) -> None:
    (folder / "fitting.py").write_text(FITTING)
    said = run("new", "--trainer", "fitting:Trainer").stdout
    edit(path := folder / "fitting_adapter.py", 'fill_in("rows")', "job.train")
    assert said.count("fill in") == 1, said
    report = importlib.import_module("fitting_adapter").Adapter().run(Job(directory=folder, train=()))
    assert report.final_step == 0
    assert "        loop.fit()\n        return Report(model=model, final_step=loop.step)\n" in path.read_text()


def test_filled_in_adapter_of_a_function_holds_and_a_fault_is_seen(folder: Path) -> None:
    run("new", "--trainer", "train:train")
    path = folder / "train_adapter.py"
    text = path.read_text().replace("model=model,", "model=Model(model),").replace("\n\nclass", f"{MODEL}\n\nclass", 1)
    text = text.replace('fill_in("data")', ROWS.format(examples="job.train")).replace('fill_in("held")', "[]")
    path.write_text(text)
    found = outcomes(pv.check("train_adapter:Adapter", only=FEW, jobs=1))
    assert [found[each] for each in FEW[:2]] == [Outcome.HELD, Outcome.HELD]
    assert [found[each] for each in FEW[2:]] == [Outcome.NOT_CLAIMED, Outcome.NOT_CLAIMED]
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


@pytest.mark.parametrize(("parameter", "given"), PARAMETERS.items())
def test_parameter_takes_the_setting_that_it_is_named_for(parameter: str, given: str) -> None:
    (node,) = ast.parse(f"def fit(model, *, {parameter}, data): ...").body
    call = called(Loop(node, {}), "fit", {"job": "job", "model": "model"})
    assert call.text == f'fit(model=model, {parameter.split("=")[0].split(":")[0]}={given}, data=fill_in("data"))'


ARGUMENTS = """
import argparse

def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="data")
    parser.add_argument("--learning-rate", type=float, default=5e-5)
    parser.add_argument("-b", "--batch-size", type=int, default=8)
    parser.add_argument("--max_train_steps", type=int)
    return parser.parse_args()

def train(args, diffusion_model): ...
"""


def test_arguments_of_the_command_line_are_settings(empty: Path) -> None:
    write(empty, {"script.py": ARGUMENTS})
    assert run("new", "--trainer", "script:train").returncode == 0
    text = (empty / "script_adapter.py").read_text()
    assert "train(args=settings(parse_args, job), diffusion_model=model)" in text
    assert (
        "from script import parse_args, train" in text and '"epochs": "it takes no' in text.partition("features = ")[2]
    )


GPT = """
from argparse import ArgumentParser

from model import GPTConfig


def parse_args(argv=None):
    parser = ArgumentParser()
    parser.add_argument("--lr", type=float, default=5e-5)
    parser.add_argument("--grad-clip", type=float, default=1.0)
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--max-steps", type=int, default=3)
    return parser.parse_args(argv)


class Trainer:
    def __init__(self, args, model):
        assert (args.lr, args.grad_clip, args.warmup, args.max_steps) == (0.5, float("inf"), 0, 5)
        self.step = 0

    def evaluate(self): ...

    def save_checkpoint(self, path): ...

    def fit(self): ...
"""


def test_settings_are_not_those_of_the_model_and_parts_of_a_class_are_not_missing(folder: Path) -> None:
    model = "class GPTConfig:\n    block_size: int = 8\n    dropout: float = 0.0\n"
    write(folder, {"gpt.py": GPT, "model.py": model})
    assert run("new", "--trainer", "gpt:Trainer").returncode == 0
    adapter = importlib.import_module("gpt_adapter").Adapter()
    assert not {"evaluate", "save", "clip", "schedule"}.intersection(adapter.features)
    job = Job(directory=folder, train=(), max_steps=5)
    assert adapter.run(job).final_step == 0
    for each in (replace(job, eval_every=1), replace(job, save_every=1)):
        with pytest.raises(Placeholder):
            adapter.run(each)


PARSED = """
import argparse

from model import GPTConfig


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=5e-5)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=1)
    options = parser.parse_args()
    return options


class Trainer:
    def __init__(self, config, model):
        self.model, self.config = model, config
        self.used = (config.lr, self.config.{used})

    def fit(self): ...
"""


@pytest.mark.parametrize(
    ("used", "call"), [("epochs", "config=settings(parse, job)"), ("elsewhere", 'config=fill_in("config")')]
)
def test_settings_have_what_the_loop_reads_of_them_or_are_asked_for(folder: Path, used: str, call: str) -> None:
    model = (
        "class GPTConfig:\n    batch_size: int = 8\n    dropout: float = 0.0\n    seed: int = 1\n    lr: float = 1.0\n"
    )
    write(folder, {"gpt.py": PARSED.format(used=used), "model.py": model})
    said = run("new", "--trainer", "gpt:Trainer").stdout
    text = (folder / "gpt_adapter.py").read_text()
    assert call in text and "GPTConfig" not in text
    places = [f"  gpt_adapter.py:{n}  config" for n, line in enumerate(text.splitlines(), 1) if 'fill_in("' in line]
    assert all(place in said for place in places) and len(places) == (used == "elsewhere")


def test_a_run_of_the_loop_says_which_claims_it_has_passed(folder: Path) -> None:
    trace = folder / "trace"
    trace.mkdir()
    epoch = (((7,), (5,)), ((6,), (8,)), ((9,),))
    (events,) = traces(Plan((epoch, epoch), scale=1.0, clip=False, logits=False, stream=False))
    (trace / "trace-1-0-1.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in numbered(events)))
    said = run("new", "--trainer", "train:Loop", "--trace", "trace").stdout
    assert "has passed, and the adapter tries on more jobs: TR-GRAD-001 (as TL-GRAD-001), TR-GRAD-002, " in said
    refused = run("new", "--trainer", "train:train", "--trace", "nowhere")
    assert refused.returncode == 3 and "no such folder of traces" in refused.stderr


def test_claims_that_say_the_same_exist_and_are_shown_from_both_sides(folder: Path) -> None:
    loops = {claim.id for path in [suites()["training-loop"]] for claim in pv.load([path]).contracts[0].claims}
    same = same_claims()
    assert {each for ids in same.values() for each in ids} <= loops
    assert "same as     TL-GRAD-002, about every job" in run("explain", "TR-WEIGHT-001").stdout
    assert "same as     TR-WEIGHT-001, about one run" in run("explain", "TL-GRAD-002").stdout


def test_what_settings_that_are_not_read_may_have_is_not_missing(empty: Path) -> None:
    write(empty, {"loops.py": "class Trainer:\n    def __init__(self, model, config): ...\n    def fit(self): ...\n"})
    assert run("new", "--trainer", "loops:Trainer").returncode == 0
    text = (empty / "loops_adapter.py").read_text()
    assert re.findall(r'^        "(\w+)": "it', text, re.MULTILINE) == ["evaluate", "save"]


def test_required_arguments_of_the_command_line_are_to_be_filled_in_unless_a_job_has_them(empty: Path) -> None:
    required = """
    parser.add_argument("model_name")
    parser.add_argument("files", nargs="*")
    parser.add_argument("--data_path", required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--note", required=False)
"""
    write(empty, {"script.py": ARGUMENTS.replace("()\n    parser", f"(){required}    parser", 1)})
    assert run("new", "--trainer", "script:train").returncode == 0
    filled = (f'{name}=fill_in("{name}")' for name in ("model_name", "data_path"))
    call = f"settings(parse_args,job,{','.join(filled)},)"
    assert call in "".join((empty / "script_adapter.py").read_text().split())


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("def fit(args, unet): ...", "loops:fit takes no model (its parameters: args, unet), so its own"),
        ("def fit(): ...", "loops:fit takes no model (it has no parameters), so its own"),
        ("class fit(Trainer): ...", "`pv check loops:fit` if its base is one of transformers, trl or lightning"),
    ],
)
def test_loop_without_a_model_is_refused_with_what_it_takes(empty: Path, code: str, says: str) -> None:
    write(empty, {"loops.py": code})
    refused = run("new", "--trainer", "loops:fit")
    assert refused.returncode == 3 and says in refused.stderr, refused.stderr


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
    ("parameter", "settings", "given"),
    [
        *((each, SETTINGS, CREATED) for each in ("cfg=RunConfig()", "run=RunConfig()", "config", "train_args")),
        *((each, SETTINGS, CREATED) for each in ("run: 'RunConfig'", "run: RunConfig | None = None")),
        ("config", TAKING, "settings(RunConfig, job, depth=fill_in("),
        ("config", "class RunConfig:\n    lr = 0.1\n", CREATED),
        ("config", f"{SETTINGS}\nclass DataConfig: ...\n", CREATED),
        ("config", f"{SETTINGS}\n{SETTINGS.replace('Run', 'Data')}", 'fill_in("config")'),
        ("note=RunConfig", SETTINGS, ""),
    ],
)
@pytest.mark.parametrize("imported", [False, True])
def test_settings_of_a_loop_are_found(empty: Path, parameter: str, settings: str, given: str, imported: bool) -> None:
    names = f"from settings import {'DataConfig, ' if 'DataConfig' in settings else ''}RunConfig"
    loops = f"{names if imported else settings}\n\ndef fit(model, {parameter}): ...\n"
    write(empty, {"settings.py": settings, "loops.py": loops})
    assert run("new", "--trainer", "loops:fit").returncode == 0
    text = (empty / "loops_adapter.py").read_text()
    name = parameter.split("=")[0].split(":")[0]
    assert f"fit(model=model, {name}={given}" in text if given else "RunConfig" not in text
    assert ("from loops import RunConfig, fit" in text) is given.startswith("settings(")


OF_A_PACKAGE = "from mine import RunConfig\n\ndef fit(model, run: RunConfig): ...\n"
TYPED = """
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from settings import RunConfig as Conf

def fit(model, run: "Conf"): ...
"""
MADE = """
class Trainer:
    @staticmethod
    def get_default_config():
        C = Node()
        C.max_iters = None
        C.batch_size = 64
        return C

    def __init__(self, config, model): ...

    def run(self): ...
"""
WARM = """
def fit(model, lr, warmup_steps, max_steps):
    rates = [{} for step in range(max_steps)]
"""
AT_LEAST_1 = WARM.replace(":\n", ":\n    warmup = max(1, warmup_steps)\n")


@pytest.mark.parametrize(
    ("source", "name", "lines"),
    [
        (OF_A_PACKAGE, "fit", (f"fit(model=model, run={CREATED})",)),
        (TYPED, "fit", ("from loops import fit\nfrom settings import RunConfig as Conf", "run=settings(Conf, job)")),
        (MADE, "Trainer", ("settings(Trainer.get_default_config, job)", '"schedule": "it takes no warm-up"')),
        (MADE.replace("C.", "D."), "Trainer", ('config=fill_in("config")',)),
        (WARM.format("step / warmup_steps"), "fit", ("warmup_steps=1", '"schedule"')),
        (WARM.format("step / max(warmup_steps, 1)"), "fit", ("warmup_steps=job.warmup",)),
        (WARM.format("lr if step > warmup_steps else step / warmup_steps"), "fit", ("warmup_steps=job.warmup",)),
        (f"WARM = 0 if warmup_steps <= 0 else 1{WARM.format('step / warmup_steps')}", "fit", ("=job.warmup",)),
        (AT_LEAST_1.format("step / warmup"), "fit", ("=job.warmup",)),
    ],
)
def test_source_tells_of_settings(empty: Path, source: str, name: str, lines: tuple[str, ...]) -> None:
    package = {"mine/settings.py": SETTINGS, "mine/__init__.py": "from .settings import RunConfig\n"}
    write(empty, {**package, "settings.py": SETTINGS, "loops.py": source})
    assert run("new", "--trainer", f"loops:{name}").returncode == 0
    text = (empty / "loops_adapter.py").read_text()
    assert [each for each in lines if each not in text] == []


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
def test_adapter_declares_what_a_loop_has(folder: Path, parts: Any, logged: Any, own_loss: bool, without: Any) -> None:
    (folder / "loops.py").write_text(PARTS.format(*parts))
    run("new", "--trainer", "loops:Loop")
    for name in ("loops", "loops_adapter"):
        sys.modules.pop(name, None)
    adapter = importlib.import_module("loops_adapter").Adapter
    there = {name for name, value in adapter.features.items() if value is True}
    assert (there, adapter.features.keys() - there) == ({*logged}, {*without})
    assert set(adapter.not_claimed) == ({"TL-LOG-003", "TL-LOG-004", "TL-LOG-005"} if own_loss else set())
