"""Run small models of transformers on random chats, and record the results, so that runs can be compared."""

import io
import json
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import torch
from torch import Tensor

from falsifiers.neutral_settings.design import TRAINED, Row
from falsifiers.support.causal import TEMPLATE, VOCABULARY, WORDS, random_llama, word_tokenizer
from falsifiers.support.interruptions import in_child
from falsifiers.support.runs import without_times
from falsifiers.universal.falsify_universal import byte_tokenizer
from reference_trainer import Callback, HuggingFace, Lines, Settings, StopRequestedError
from reference_trainer.config.sources import gather, variables
from reference_trainer.pipeline.precompute import precompute

CONTENT = "{{ m['content'] }} <end>"
TOOLS = "{% for tool in tools or [] %}{{ tool['function']['name'] }} {% endfor %}"
PLAIN = TOOLS + TEMPLATE.replace("{{ m['content'] }}", "{{ m['content'].split()[-1] if brief else m['content'] }}")
MARKED = TOOLS + TEMPLATE.replace(
    CONTENT,
    f"{{% if m['role'] == 'assistant' %}}{{% generation %}}{CONTENT}{{% endgeneration %}}"
    f"{{% else %}}{CONTENT}{{% endif %}}",
)
HOOKS = [name for name in vars(Callback) if name.startswith("on_")]


def chats(seed: int, number: int) -> list[dict[str, Any]]:
    """Draw conversations of one to three turns; some have a system message or tools."""
    draw = random.Random(seed)

    def text() -> str:
        return " ".join(draw.choices(WORDS, k=draw.randint(1, 7)))

    rows: list[dict[str, Any]] = []
    for n in range(number):
        messages = [{"role": "system", "content": text()}] if n % 3 == 1 else []
        for _ in range(draw.randint(1, 3)):
            messages += [{"role": "user", "content": text()}, {"role": "assistant", "content": text()}]
        names = draw.sample(WORDS, n % 2 + 1)
        tools = [{"type": "function", "function": {"name": name, "description": "-"}} for name in names]
        rows.append({"messages": messages, "tools": tools if n % 4 == 2 else None})
    return rows


@dataclass
class Workspace:
    """A directory with the models, the data and the runs of one configuration.

    Attributes:
        directory: The directory.
        row: The choices of the configuration; its neutral choices are not used.
        seed: The seed of data, models and runs.
        runs: Number of runs so far.
        steps: Number of optimizer steps of a run; set by the caller after the first run.
        models: Student and teacher, with their tokenizers.
        tokens: k of stored top-k outputs with which every token is stored.
    """

    directory: Path
    row: Row
    seed: int
    runs: int = 0
    steps: int = 0
    models: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    tokens: int = 0

    def __post_init__(self) -> None:
        self._write_data()
        self._create_models()

    def _write_data(self) -> None:
        from pyarrow import Table, parquet

        for at, (name, number) in enumerate({"data": 11, "other": 5, "held-back": 4}.items()):
            rows = chats(self.seed * 10 + at, number)
            lines = [json.dumps(row) + "\n" for row in rows]
            (self.directory / f"{name}.jsonl").write_text("".join(lines))
            parquet.write_table(Table.from_pylist(rows), self.directory / f"{name}.parquet")
            (self.directory / name).mkdir()
            for part, begin in enumerate(range(0, number, 2)):
                (self.directory / name / f"{part}.jsonl").write_text("".join(lines[begin : begin + 2]))

    def _create_models(self) -> None:
        row, size = self.row, len(VOCABULARY)
        words = word_tokenizer()
        words.chat_template = MARKED if row["template"] == "marked" else PLAIN
        (self.directory / "template.jinja").write_text(words.chat_template)
        is_other = row["teacher"] == "other tokenizer"
        teacher_tokenizer = byte_tokenizer(270) if is_other else words
        teacher_tokenizer.chat_template = words.chat_template
        # Logits beyond the tokens of the tokenizer, of teacher and student.
        surplus = {"larger": (7, 0), "smaller": (0, 5), "padded": (0, 3)}.get(row["teacher"], (0, 0))
        options: dict[str, dict[str, Any]] = {
            "with dropout": {"attention_dropout": 0.2},
            "tied": {"tie_word_embeddings": True},
        }
        dtype = {"float64": torch.float64, "float32": torch.float32}.get(row["numbers"], torch.bfloat16)
        student = random_llama(size + surplus[1], 16, seed=self.seed, **options.get(row["student"], {}))
        teacher_size = len(teacher_tokenizer) if is_other else size + surplus[0]
        teacher = random_llama(teacher_size, 32, seed=self.seed + 1).to(dtype)
        self.tokens = size + 3 if row["teacher"] == "padded" else size
        self.models = {"student": (student, words), "teacher": (teacher, teacher_tokenizer)}

    def model(self, name: str, *, parts: bool) -> Path:
        """Return the directory of a model, which the first call saves. parts: save several files instead of one."""
        directory = self.directory / (f"{name} in parts" if parts else name)
        if not directory.exists():
            model, tokenizer = self.models[name]
            model.save_pretrained(directory, max_shard_size="8KB" if parts else "1GB")
            tokenizer.save_pretrained(directory)
        return directory

    def settings(self, row: Row, out: str, **changes: Any) -> dict[str, Any]:
        """Return the flat settings of a run, except `teacher_outputs`."""
        chosen: dict[str, Any] = {"device": "cpu", "hang_after": 0.0, "seed": self.seed, "data_workers": 0}
        for name, choices in TRAINED.items():
            chosen |= choices[row[name]]
        chosen["length"] *= 4 if row["teacher"] == "other tokenizer" else 1  # its tokens are bytes
        parts = row["files of models"] == "several"
        chosen |= {name: self.model(name, parts=parts) for name in ("student", "teacher")}
        ending = {"JSON lines": ".jsonl", "Parquet": ".parquet", "several": ""}[row["files"]]
        chosen |= {"data": self.directory / f"data{ending}", "out": self.directory / out}
        if "eval_data" in chosen:
            chosen |= {"eval_data": self.directory / f"held-back{ending}"}
        if "mix" in chosen:
            chosen |= {"mix": json.dumps({str(self.directory / f"other{ending}"): chosen["mix"]})}
        if row["files of models"] == "template in a file":
            chosen |= {"chat_template": self.directory / "template.jinja"}
        chosen |= {"eval_rows": 0, "data_cache": self.directory / f"cache of {out}"}
        chosen |= {"data_workers": 2} if row["tokens"] == "by workers" else {}
        chosen |= {"checkpoint_activations": True} if row["memory"] == "computed again" else {}
        chosen |= {"attn_implementation": "eager"} if row["attention"] == "eager" else {}
        chosen |= {
            "never": {"save_every": 0},
            "every step, last kept": {"save_every": 1, "keep": 1},
            "every second step": {"save_every": 2, "keep": 0},
        }[row["saved"]]
        evaluations: dict[str, dict[str, Any]] = {
            "at the end": {},
            "every step": {"eval_every": 1},
            "every second step, drafts": {"eval_every": 2, "accept_depth": 2},
            "every step, a row": {"eval_every": 1, "eval_rows": 1, "best_metric": "eval/hard_loss", "keep": 1},
        }
        chosen |= evaluations[row["evaluated"]]
        chosen |= {"log_every": {"every step": 1, "every second step": 2, "epochs": 0}[row["logged"]]}
        if row["watched"] != "no":
            chosen |= {"trace": self.directory / f"{out}.trace", "project_to_steps": 7}
        if row["watched"] == "by a file":
            file = self.directory / "callbacks.toml"
            file.write_text('[[callbacks]]\nuse = "falsifiers.neutral_settings.runs:ContextReader"\n')
            chosen |= {"callbacks": file}
        return chosen | changes


def settings_from(directory: Path, source: str, chosen: Mapping[str, Any]) -> Settings:
    """Return the settings, given as keywords ("call"), "flags", a "file" or environment "variables"."""
    if source == "call":
        return Settings(**chosen)
    values = {name: str(value) if isinstance(value, Path) else value for name, value in chosen.items()}
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in values.items()}
    if source == "flags":
        return gather(texts, {}, None)
    if source == "variables":
        return gather({}, {variables(name)[0]: text for name, text in texts.items()}, None)
    file = directory / "settings.toml"
    file.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items()))
    return gather({}, {}, file)


class ContextReader(Callback):
    """Callback that reads every value of the context in every hook, and counts the steps.

    instances: all instances; a callback file creates instances that the caller cannot reach otherwise.
    """

    instances: ClassVar[list[Any]] = []

    def __init__(self) -> None:
        self.steps = 0
        ContextReader.instances.append(self)


def _reading_hook(name: str) -> Any:
    def hook(self: ContextReader, context: Any) -> None:
        context.snapshot()
        self.steps += name == "on_step_end"

    return hook


for _name in HOOKS:
    setattr(ContextReader, _name, _reading_hook(_name))


class Recorder(Callback):
    """Callback without hooks: it records the initial student, and counts forwards of the first layer with a gradient.

    A hook of the attention of the layer counts them: hooks of the layer itself are not called when activation
    checkpointing computes the layer again.
    """

    def __init__(self) -> None:
        self.initial: dict[str, Tensor] = {}
        self.layer_calls = 0
        self.run: Any = None

    def attach(self, pipeline: Any) -> None:
        self.run = pipeline
        self.initial = tensors(pipeline.student)
        layer = next(module for name, module in pipeline.student.named_modules() if name.endswith("layers.0.self_attn"))
        layer.register_forward_pre_hook(self._count)

    def _count(self, module: Any, arguments: Any) -> None:
        self.layer_calls += module.training and torch.is_grad_enabled()


class Interrupt(Callback):
    """Callback that raises `KeyboardInterrupt` once, in a hook of a step."""

    def __init__(self, hook: str, step: int) -> None:
        self.hook, self.step, self.done = hook, step, False

    def _act(self, hook: str, context: Any) -> None:
        if not self.done and hook == self.hook and context.step == self.step:
            self.done = True
            raise KeyboardInterrupt

    def on_before_forward(self, context: Any) -> None:
        self._act("on_before_forward", context)

    def on_after_backward(self, context: Any) -> None:
        self._act("on_after_backward", context)

    def on_evaluate(self, context: Any) -> None:
        self._act("on_evaluate", context)

    def on_step_end(self, context: Any) -> None:
        self._act("on_step_end", context)


def tensors(module: Any) -> dict[str, Tensor]:
    """Return copies of all parameters, also of the base weights, which the state of an adapter lacks."""
    return {name: value.detach().clone() for name, value in module.named_parameters()}


@dataclass
class RunRecord:
    """The record of a run, to compare it with another record.

    Attributes:
        row: The choices of the run.
        initial: The weights before the training.
        weights: The weights after the training.
        steps: The lines of the metrics file.
        held_back: Sum and count of every metric on held-back rows.
        trained: The fields of the result of the training.
        manifest: The manifest of the output.
        files: The bytes of the weight files.
        entries: The entries of the token cache before and after the run.
        layer_calls: Number of forwards of the first layer in training.
        forks: Number of forked processes.
        attention: The attention implementation.
        directory: The output directory.
        resumed_from: The step that the run resumed from; 0 for a run without interrupt.
        saves: Whether checkpoints are expected.
        watched: Number of steps that a `ContextReader` saw.
    """

    row: Row
    initial: dict[str, Tensor]
    weights: dict[str, Tensor]
    steps: list[dict[str, Any]]
    held_back: dict[str, tuple[float, int]]
    trained: dict[str, Any]
    manifest: dict[str, Any]
    files: dict[str, bytes]
    entries: tuple[set[str], set[str]]
    layer_calls: int
    forks: int
    attention: str
    directory: Path
    resumed_from: int
    saves: bool
    watched: int


def run_and_record(subject: Any, workspace: Workspace, row: Row) -> RunRecord:
    """Prepare teacher outputs and the token cache as the row says, run the training, and return its record."""
    workspace.runs += 1
    out = f"run {workspace.runs}"
    chosen = workspace.settings(row, out)
    cache = chosen["data_cache"]
    if row["outputs"] != "live":
        chosen |= {"teacher_outputs": _store_outputs(workspace, row, chosen, out)}
    if row["tokens"] == "cache shared with another run":
        _tokenize(workspace, chosen, **_other_data(workspace, chosen))
    elif row["tokens"] == "kept":
        _tokenize(workspace, chosen)
    elif row["tokens"] == "kept by another process":
        outcome = in_child(lambda: _tokenize(workspace, chosen))
        assert outcome == "done", f"a process that tokenizes the data ended with {outcome}; expected done"
    before = _entries(cache)
    ContextReader.instances.clear()
    with _counted_forks() as forks:
        recorder, result, resumed_from = _run_to_end(subject, workspace, row, chosen)
    directory = workspace.directory / out
    metrics = directory / "metrics.jsonl"
    lines = [json.loads(line) for line in metrics.read_text().splitlines()] if metrics.exists() else []
    model: Any = getattr(recorder.run.student, "model", recorder.run.student)
    return RunRecord(
        row=row,
        initial=_as_merged(recorder.initial) if "lora_merge" in chosen else recorder.initial,
        weights=tensors(result.student),
        steps=lines,
        held_back={name: (total.sum, total.count) for name, total in result.held_back.items()},
        trained={name: getattr(result.train, name) for name in ("steps_completed", "tokens", "initial_loss")}
        | {name: getattr(result.train, name) for name in ("final_loss", "best_loss", "finite", "stopped")},
        manifest=json.loads((directory / "manifest.json").read_text()),
        files={path.name: path.read_bytes() for path in directory.glob("*.safetensors")},
        entries=(before, _entries(cache)),
        layer_calls=recorder.layer_calls,
        forks=len(forks),
        attention=str(getattr(model.config, "_attn_implementation", "")),
        directory=directory,
        resumed_from=resumed_from,
        saves=chosen["save_every"] > 0 or chosen.get("eval_every", 0) > 0 or resumed_from > 0,
        watched=ContextReader.instances[-1].steps if ContextReader.instances else 0,
    )


def distil(subject: Any, settings: Settings, callbacks: Sequence[Callback] = (), *, lines: Lines) -> Any:
    """Run a distillation and return its result."""
    # Entered twice, as in `pipeline.distill`: the outer block handles an interrupt at the end of the inner block.
    with subject.HuggingFace(settings, callbacks=callbacks, lines=lines) as run, run:
        run.prepare()
        return run.conclude(run.run())


def _run_to_end(subject: Any, workspace: Workspace, row: Row, chosen: dict[str, Any]) -> tuple[Recorder, Any, int]:
    """Run a distillation, interrupted as the row says; return the recorder, the result, and the resumed step or 0."""
    recorder = Recorder()
    callbacks: list[Callback] = [recorder]
    callbacks += [ContextReader()] if row["watched"] == "by objects" else []
    quiet = Lines(io.StringIO())
    steps = workspace.steps
    if row["interrupted"] == "no":
        settings = settings_from(workspace.directory, row["source"], chosen)
        return recorder, distil(subject, settings, callbacks=callbacks, lines=quiet), 0
    step = 2 + workspace.seed % (steps - 1)  # 2 to the last step
    chosen = {**chosen, "save_every": min(chosen["save_every"] or 1, step - 1)}
    if row["interrupted"] == "limited":
        step -= 1
        distil(subject, Settings(**chosen, max_steps=step), lines=quiet)
    else:
        hook = {"after a step": "on_step_end", "within a step": "on_after_backward"}.get(row["interrupted"])
        if hook is None:
            hook = "on_evaluate" if row["evaluated"].startswith("every step") else "on_before_forward"
        try:
            distil(subject, Settings(**chosen), callbacks=[Interrupt(hook, step)], lines=quiet)
        except (KeyboardInterrupt, StopRequestedError):
            pass
        else:
            raise AssertionError(f"the run ends without the interrupt in {hook} of step {step}")
    saved = [int(path.name.removeprefix("student-step")) for path in chosen["out"].glob("checkpoints/student-step*")]
    assert saved, f"no checkpoint after {step} steps; expected at least one"
    settings = settings_from(workspace.directory, row["source"], {**chosen, "resume": Path("latest"), "force": True})
    result = distil(subject, settings, callbacks=callbacks, lines=quiet)
    return recorder, result, max(saved)


def _store_outputs(workspace: Workspace, row: Row, chosen: dict[str, Any], out: str) -> Path:
    """Store the outputs of the teacher, with other batches than the run, and return their directory."""
    outputs = workspace.directory / f"outputs of {out}"
    changes = {"out": outputs, "batch_size": 4, "accumulate": 1, "data_cache": workspace.directory / "other cache"}
    changes |= {"group_by_length": False, "trace": None, "callbacks": None}
    precompute(
        Settings(**{**chosen, **changes}),
        top_k=workspace.tokens if row["outputs"] == "every token kept" else None,
        shard_bytes=(1, 2**28)[workspace.seed % 2],
        lines=Lines(io.StringIO()),
        environment={},
    )
    return outputs


def _tokenize(workspace: Workspace, chosen: dict[str, Any], **changes: Any) -> None:
    """Tokenize the data of a run, which fills its token cache."""
    settings = Settings(**{**chosen, "trace": None, "callbacks": None, "teacher_outputs": None, **changes})
    with HuggingFace(settings, lines=Lines(io.StringIO()), environment={}) as run:
        run.device = torch.device("cpu")
        run.make_batches()


def _other_data(workspace: Workspace, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings that change the tokens of the same data files."""
    turns = {"turns": "last" if chosen.get("turns", "every") == "every" else "every"}
    options = {"template_options": None if chosen.get("template_options") else '{"brief": true}'}
    changes: list[dict[str, Any]] = [turns, options, {"length": chosen["length"] - 1}]
    return changes[workspace.seed % 3]


def _as_merged(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the base weights of a model with an adapter, with their names in the model without an adapter."""
    base = {name: value for name, value in weights.items() if "lora_" not in name}
    return {name.replace("base_model.model.", "").replace(".base_layer", ""): value for name, value in base.items()}


def _entries(cache: Path) -> set[str]:
    return {str(path.relative_to(cache)) for path in cache.rglob("*") if path.is_dir()} if cache.exists() else set()


@contextmanager
def _counted_forks() -> Iterator[list[int]]:
    """Yield a list to which the id of every process forked within the context is added."""
    fork, pids = os.fork, list[int]()

    def recording_fork() -> int:
        pid = fork()
        pids.append(pid)
        return pid

    with mock.patch.object(os, "fork", recording_fork):
        yield pids


def comparable(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the lines of a metrics file without times and metrics of evaluations."""
    return [
        line | {"metrics": {name: value for name, value in line["metrics"].items() if not name.startswith("eval/")}}
        for line in map(without_times, lines)
    ]
