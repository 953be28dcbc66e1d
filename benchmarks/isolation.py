"""What it costs to run a falsifier in a worker of its own: in-process, forked and spawned, interleaved.

python benchmarks/isolation.py [ROUNDS]
"""

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pv
from pv.contract.model import Binding, Target
from pv.engines.code import ResolvedCode
from pv.engines.engine import Conditions
from pv.engines.failures import FailureClassifier
from pv.engines.property.attack import Settings, attack, load_profile
from pv.engines.stream import Stream
from pv.instrument.import_hook import RootsFirst
from pv.source.project import find_project
from pv.workers import tasks
from pv.workers.pool import Pool
from pv.workers.running_task import Task
from pv.workers.tasks import MEMORY_MIB, preload

PROJECT = Path(__file__).resolve().parents[1] / "tests" / "projects" / "small"
BATCH = 10


def main(rounds: int) -> None:
    project = find_project(PROJECT)
    (contract,) = pv.load(project.contracts).contracts
    claim = next(f for f in contract.falsifiers if f.id == "C-LIMIT")
    code = ResolvedCode(project, Target("counting"))
    body = tasks.attack(code, contract, claim, Conditions(examples=100))
    loaded = preload(project, [contract], [code.subject])
    with Pool(loaded, 1) as forked, Pool(loaded, 1, spawn=True) as spawned:
        ways: dict[str, Callable[[], None]] = {
            "in process": in_process(project.root, code, claim.test),
            "forked": lambda: run(forked, body, BATCH),
            "spawned": lambda: run(spawned, body, 1),
        }
        for way in ways.values():
            way()
        seconds = {name: [] for name in ways}
        for _ in range(rounds):
            for name, way in ways.items():
                start = time.perf_counter()
                way()
                seconds[name].append((time.perf_counter() - start) / (1 if name == "spawned" else BATCH))
    base = statistics.median(seconds["in process"])
    for name, values in seconds.items():
        middle = statistics.median(values)
        print(f"{name:<11} {middle * 1e3:7.1f} ms a falsifier of 100 examples, {middle / base:5.2f} x in process")


def in_process(root: Path, code: ResolvedCode, bound: Binding | None) -> Callable[[], None]:
    sys.path.insert(0, str(root))
    sys.meta_path.insert(0, RootsFirst({"falsifiers"}, [str(root)]))
    load_profile(100, shrink=True)
    import counting

    from falsifiers import falsify_counting

    falsifier = getattr(falsify_counting, bound.name if bound else "")
    failures = FailureClassifier(root, [str(path) for path in code.subject_files])
    inner = falsifier.hypothesis.inner_test
    with tempfile.TemporaryFile() as sink:
        stream = Stream(sink.fileno())

    def batch() -> None:
        for _ in range(BATCH):
            falsifier.hypothesis.inner_test = inner
            record = attack(falsifier, {"subject": counting}, Settings(examples=100, seed=0), failures, stream)
            assert record["status"] == "held", json.dumps(record)

    return batch


def run(pool: Pool, body: dict[str, object], times: int) -> None:
    for _ in range(times):
        pool.submit(Task(key=None, body=body, limit_s=60, memory_mib=MEMORY_MIB))
    for _, reply in pool.replies():
        end = reply.last("end")
        assert end is not None and end["status"] == "held", end


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
