"""Attacks on when a teacher is run, and on the digest by which it is known."""

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor, nn

from falsifiers.rank_runs.launched import assert_no_error, launched
from falsifiers.resume.runs import TIMEOUT_S
from falsifiers.support.oracles import assert_refused
from falsifiers.support.runs import run, scratch, small, written_model
from reference_trainer import Annealed, Callback, Schedule
from reference_trainer.distillation.protocols import Batch
from reference_trainer.distillation.providers import ModuleStudent
from reference_trainer.plan.objective import Objective

OF_A_TEACHER = {"kl_at_1", "kl_at_T", "teacher_loss", "teacher_entropy", "teacher_perplexity", "agreement"}


class CountedTeacher:
    """A teacher that notes in which step it is run."""

    vocab_size = 3

    def __init__(self) -> None:
        self.step, self.steps = 0, list[int]()

    def logits(self, batch: Batch) -> Tensor:
        self.steps.append(self.step)
        return torch.zeros(*batch.tokens.shape, 3, dtype=torch.float64)


class Noted(Callback):
    """Tell the teacher the step, and keep the metrics of each logged one."""

    def __init__(self, teacher: CountedTeacher) -> None:
        self.teacher, self.logged = teacher, dict[int, Any]()

    def on_step_begin(self, context: Any) -> None:
        self.teacher.step = context.step

    def on_log(self, context: Any) -> None:
        self.logged[context.step] = set(context.metrics)


@given(
    start=st.sampled_from([0.0, 1.0]),
    end=st.sampled_from([None, 0.0, 1.0]),
    warmup=st.integers(0, 4),
    steps=st.integers(1, 9),
    every=st.integers(0, 4),
)
def falsify_teacher_runs_where_it_is_needed(
    subject: Any, start: float, end: float | None, warmup: int, steps: int, every: int
) -> None:
    kd = start if end is None else Annealed(start, end, "linear", warmup)
    table, teacher = nn.Embedding(3, 3, _weight=torch.zeros(3, 3, dtype=torch.float64)), CountedTeacher()
    noted, tokens = Noted(teacher), torch.tensor([[0, 1, 2]])
    subject.train(
        teacher,
        ModuleStudent(table, 3),
        lambda epoch, k: Batch(tokens=tokens, labels=tokens),
        torch.optim.SGD(table.parameters(), lr=0.1),
        schedule=Schedule(epochs=1, steps_per_epoch=steps, log_every=every),
        objective=Objective(temperature=2.0, ce_weight=1.0, kd_weight=kd),
        learning_rate=lambda step: 0.1,
        callbacks=[noted],
    )
    weight = {step: kd.at(step, steps) if isinstance(kd, Annealed) else kd for step in range(1, steps + 1)}
    logged = range(every, steps + 1, every) if every else range(0)
    together = {
        step: next(([*range(last - every + 1, last + 1)] for last in logged if step <= last), [step]) for step in weight
    }
    expected = [step for step in weight if any(weight[each] for each in together[step])]
    assert teacher.steps == expected, f"with the weights {weight}, logged every {every}, it ran in {teacher.steps}"
    for step, names in noted.logged.items():
        found, whole = names & OF_A_TEACHER, OF_A_TEACHER if step in expected else set()
        assert found == whole, f"step {step}, of weight {weight[step]}, logs {sorted(found)}; expected {sorted(whole)}"


class Kept(Callback):
    """Write the bytes of the teacher's weights that this rank has at the end, those that there are, and their dtype."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def attach(self, distillation: Any) -> None:
        self.run = distillation

    def on_train_end(self, context: Any) -> None:
        pieces = [getattr(each, "to_local", each.detach)() for each in self.run.teacher.parameters()]
        kept = sum(each.untyped_storage().nbytes() for each in pieces)
        total, dtypes = sum(each.nbytes for each in self.run.teacher.parameters()), {str(each.dtype) for each in pieces}
        self.path.write_text(json.dumps([kept, total, *sorted(dtypes)]))


@given(strategy=st.sampled_from(["fsdp2", "ddp"]), dtype=st.sampled_from([torch.float32, torch.bfloat16]))
@example(strategy="ddp", dtype=torch.bfloat16)
def falsify_ranks_share_the_teacher(subject: Any, strategy: str, dtype: torch.dtype) -> None:
    class OfDtype(subject.Distillation):  # the subject is any module
        def make_teacher(self) -> nn.Module:
            made: nn.Module = super().make_teacher().to(dtype)
            return made

    with scratch() as directory:
        given = {"strategy": strategy, "rank_timeout": TIMEOUT_S, "teacher_width": 64, "eval_every": 1}
        chosen = [small(directory, out=directory / str(flag), shard_teacher=flag, **given) for flag in (False, True)]
        whole = launched(OfDtype, chosen[0], 2)
        shared = launched(OfDtype, chosen[1], 2, lambda rank: [Kept(directory / f"kept{rank}")])
        assert_no_error(f"a teacher in shards, {strategy}", [*whole, *shared])
        for rank in range(2):
            kept, total, *dtypes = json.loads((directory / f"kept{rank}").read_text())
            assert dtypes == [str(dtype)], f"rank {rank} keeps a teacher of {dtype} in {dtypes}"
            assert kept <= 0.51 * total, f"rank {rank} keeps {kept} of the teacher's {total} bytes"
        for name, expected in whole[0].weights.items():
            assert torch.equal(shared[0].weights[name], expected), (
                f"{name} of the student differs, with {strategy} and a teacher of {dtype}"
            )
        digests = [json.loads((directory / out / "manifest.json").read_text()) for out in ("False", "True")]
        assert digests[0]["teacher_sha256"] == digests[1]["teacher_sha256"], "a divided teacher has another digest"


@given(seed=st.integers(0, 99))
def falsify_digest_of_a_teacher_is_that_of_its_file(subject: Any, seed: int) -> None:
    """The teacher computes in float64, so its weights in memory are not those of the file."""
    with scratch() as directory:
        teacher = written_model(directory, seed=seed)
        run(subject, small(directory, out=directory / "out", teacher=teacher, dtype="float64"))
        manifest = json.loads((directory / "out" / "manifest.json").read_text())
        expected = hashlib.sha256((teacher / "model.safetensors").read_bytes()).hexdigest()
    assert manifest["teacher_sha256"] == expected, f"the digest is {manifest['teacher_sha256']}, of the file {expected}"


@given(contents=st.lists(st.binary(min_size=1, max_size=9), min_size=2, max_size=4))
def falsify_digest_of_shards(subject: Any, contents: list[bytes]) -> None:
    with scratch() as directory:
        files = {f"model-{number}.safetensors": content for number, content in enumerate(contents)}
        for file, content in files.items():
            (directory / file).write_bytes(content)
        index = {"weight_map": {f"w{number}": file for number, file in enumerate(reversed(files))}}
        (directory / "model.safetensors.index.json").write_text(json.dumps(index))
        seen = subject.files_digest(subject.weight_files(directory))
        (directory / "model-1.safetensors").write_bytes(contents[1] + b"x")
        other = subject.files_digest(subject.weight_files(directory))
        text = "".join(f"{hashlib.sha256(content).hexdigest()}  {file}\n" for file, content in files.items())
        assert seen == hashlib.sha256(text.encode()).hexdigest(), f"the digest of {sorted(files)} is {seen}"
        assert other != seen, "another shard has the same digest"
        for missing, words in (("model-0.safetensors", "model-0"), ("model.safetensors.index.json", str(directory))):
            (directory / missing).unlink()
            assert_refused(f"no {missing}", lambda: subject.files_digest(subject.weight_files(directory)), words)
