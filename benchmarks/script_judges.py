"""Compare what other judges of training scripts say about the edited scripts of the tests.

    pip install torch-audit traincheck
    python benchmarks/script_judges.py torch-audit
    python benchmarks/script_judges.py traincheck [--script classifier]

torch-audit gets the two lines that its documentation asks for, before the first forward pass: `autopatch(model,
optimizer)` for every optimizer, at every step. For every edit of a script the rules are printed that it reports there
and not for the correct script, and the rules that it reports for the correct script, which are false there.

traincheck learns invariants from a run of the correct script. Printed are the numbers of invariants that a run of the
correct script with another seed violates, which are false, and that a run of each edit violates, with CPU seconds.
"""

import argparse
import contextlib
import gc
import io
import json
import re
import resource
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.observe.edits import EDITS  # noqa: E402  (the line above makes it importable)

SCRIPTS = ROOT / "tests/observe/scripts"


def edited() -> Iterator[tuple[str, str, str]]:
    """Yield the claim, the name of the script and the text of every edit."""
    for claim, edits in EDITS.items():
        for script, *texts in edits:
            source = (SCRIPTS / f"{script}.py").read_text()
            if "\nranks: 2" in source or "\nneeds:" in source:
                continue
            for old, new in zip(texts[::2], texts[1::2], strict=True):
                source = source.replace(old, new)
            yield claim, script, source


def audit(path: str) -> None:
    """Run a script under torch-audit, and print the rules that it reports as JSON."""
    import torch
    from torch_audit import autopatch

    auditors: list[Any] = []
    call = torch.nn.Module.__call__

    def begin(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        # At the first call the optimizers, and the schedules that replace their `step`, are there.
        if not auditors:
            torch.nn.Module.__call__ = call
            objects = gc.get_objects()
            for optimizer in (o for o in objects if isinstance(o, torch.optim.Optimizer)):
                held = {id(p) for group in optimizer.param_groups for p in group["params"]}
                models = [m for m in objects if type(m).__module__ != "torch" and isinstance(m, torch.nn.Module)]
                models = [m for m in models if any(id(p) in held for p in m.parameters())]
                if models:
                    model = max(models, key=lambda m: sum(1 for _ in m.modules()))
                    auditors.append(autopatch(model, optimizer=optimizer, every_n_steps=1, reporters=[]))
        return call(self, *args, **kwargs)

    torch.nn.Module.__call__ = begin
    sys.argv = [path]
    error = ""
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            runpy.run_path(path, run_name="__main__")
    except Exception as raised:  # a script that fails, such as by a NaN, is a result
        error = f"{type(raised).__name__}: {raised}"[:100]
    rules = {(f.rule_id, f.severity.name) for auditor in auditors for f in auditor.finish(report=False).findings}
    print(json.dumps({"rules": sorted(rules), "error": error}))


def torch_audit(folder: Path) -> None:
    def rules(source: str) -> set[str]:
        path = folder / "script.py"
        path.write_text(source)
        done = subprocess.run([sys.executable, __file__, "--audit", path], cwd=folder, capture_output=True, text=True)
        return {" ".join(rule) for rule in json.loads(done.stdout.splitlines()[-1])["rules"]}

    correct: dict[str, set[str]] = {}
    for claim, script, source in edited():
        if script not in correct:
            correct[script] = rules((SCRIPTS / f"{script}.py").read_text())
            print(f"correct  {script}: {sorted(correct[script])}", flush=True)
        print(f"edited   {script} ({claim}): {sorted(rules(source) - correct[script])}", flush=True)


def traincheck(folder: Path, script: str) -> None:
    correct = (SCRIPTS / f"{script}.py").read_text()
    model = re.findall(r"^(\w+) = (?:nn\.Sequential|\w*Net|Model)\(", correct, re.MULTILINE)[0]
    programs = Path(sys.executable).parent

    def run(program: str, *words: str) -> str:
        done = subprocess.run([programs / f"traincheck-{program}", *words], cwd=folder, capture_output=True, text=True)
        return done.stdout + done.stderr

    def collect(name: str, source: str, *words: str) -> None:
        (folder / f"{name}.py").write_text(source)
        run("collect", "--pyscript", f"{name}.py", "--models-to-track", model, "--output-dir", name, *words)

    collect("reference", correct)
    run("infer", "-f", "reference", "-o", "invariants.json")
    other = re.sub(r"manual_seed\(\d+\)", "manual_seed(12345)", correct)
    rows = [("correct, another seed", other), *((c, source) for c, name, source in edited() if name == script)]
    for number, (label, source) in enumerate(rows):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        collect(f"run{number}", source, "--invariants", "invariants.json")
        output = run("check", "-f", f"run{number}", "-i", "invariants.json")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        violated = re.findall(r"Total failed invariants: (\S+)", output)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        print(f"{label}: {violated[-1] if violated else output[-300:]} violated, {seconds:.0f} CPU s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="See the docstring.")
    parser.add_argument("judge", nargs="?", choices=["torch-audit", "traincheck"])
    parser.add_argument("--script", default="classifier", help="for traincheck: the script whose edits are judged")
    parser.add_argument("--audit", metavar="PATH", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.audit:
        audit(arguments.audit)
        return
    with tempfile.TemporaryDirectory() as folder:
        if arguments.judge == "torch-audit":
            torch_audit(Path(folder))
        else:
            traincheck(Path(folder), arguments.script)


if __name__ == "__main__":
    main()
