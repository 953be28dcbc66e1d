"""Attacks on the evaluation of saved models: metrics, identity, cache of model outputs, and refusals.

The identity of an evaluation is the digest of everything that its metrics depend on.
"""

import itertools
import json
import math
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch.nn.modules.module import register_module_forward_hook

from falsifiers.evaluation import cases
from falsifiers.evaluation.cases import BYTES, TOKENS, checkpoint, chosen, decoder, model
from falsifiers.support.assertions import assert_equal, refusal
from falsifiers.support.oracles import assert_close, assert_refused
from falsifiers.support.ranks import run_ranks
from falsifiers.support.runs import flip, reconfigure, run, scratch, small
from falsifiers.teacher_outputs.falsify_outputs import expected_divergence, written
from reference_trainer import MetricSum, SettingError, Settings, TrainerError
from reference_trainer.pipeline import distill
from reference_trainer.pipeline.checkpoint_list import export_checkpoint
from reference_trainer.storage.checkpoints import Manifest, save_checkpoint
from reference_trainer.storage.export import save_decoder, weights_digest

TEXT = bytes(range(TOKENS)) * 4


@given(text=BYTES, length=st.integers(2, 5), batch_size=st.integers(1, 9), compared=st.booleans(), whole=st.booleans())
@example(text=bytes(range(TOKENS)) * 2, length=4, batch_size=2, compared=True, whole=True)
@example(text=bytes(range(10)), length=10, batch_size=1, compared=False, whole=True)
@example(text=bytes(range(TOKENS)) * 2, length=4, batch_size=2, compared=True, whole=False)
def falsify_numbers_are_those_of_the_logits(
    subject: Any, device: str, text: bytes, length: int, batch_size: int, compared: bool, whole: bool
) -> None:
    """Evaluate a model and a checkpoint. compared: with a teacher. whole: all of the text, or its last tenth."""
    with scratch() as directory:
        paths, teacher = [model(directory, 1), checkpoint(directory, 2)], model(directory, 3) if compared else None
        settings = chosen(directory, text, batch_size=batch_size, device=device, length=length, teacher=teacher)
        models = subject.evaluate_saved(paths, settings, whole=whole).models
    rows = cases.rows_of(torch.tensor(list(text if whole else text[len(text) * 9 // 10 :])), length)
    assert_equal("evaluated models", [entry.path for entry in models], paths)
    for seed, entry in enumerate(models, start=1):
        expected = cases.sums_of(decoder(seed), decoder(3) if compared else None, rows)
        assert_equal("metrics", entry.sums.keys(), expected.keys())
        for metric, total in expected.items():
            case = f"{metric} of {entry.path.name} over {'the whole' if whole else 'a tenth'} of {len(text)} bytes"
            assert_equal(f"tokens of {case}", entry.sums[metric].count, rows[:, 1:].numel())
            # The error of logits in float32 is below 1e-5 nats a byte.
            allowed = 1e-5 * rows[:, 1:].numel()
            assert_close(case, entry.sums[metric].sum, total, allowed, "the sum over scored bytes")


RUN_SETTINGS = [{"length": 9, "accept_depth": 2}, {"documents": "pack", "separator": "^"}, {"dtype": "bfloat16"}]
"""Settings of runs that change their evaluation."""


@given(of_run=st.sampled_from(RUN_SETTINGS))
def falsify_numbers_of_a_run_are_found_again(subject: Any, of_run: dict[str, Any]) -> None:
    """Evaluate the model of a run, its last checkpoint and an export of it, with the settings in their manifests."""
    with scratch() as directory:
        settings = small(directory, out=directory / "out", save_every=1, **of_run)
        result = run(distill, settings)
        (directory / "teacher").mkdir()
        save_decoder(result.teacher, directory / "teacher", {})
        paths = [directory / "exported", directory / "out", directory / "out" / "checkpoints" / "student-latest"]
        export_checkpoint(directory / "out", "latest", paths[0])
        options = {"data": settings.data.path, "device": "cpu", "teacher": directory / "teacher"}
        evaluation = subject.evaluate_saved(paths, subject.settings_of_run([directory / "missing", *paths], options))
        identity = json.loads((paths[1] / "manifest.json").read_text())["evaluation"]
    assert_equal(f"{of_run}: the identity of the evaluation", evaluation.config.in_json(), identity)
    assert_equal(f"{of_run}: evaluated models", [entry.path for entry in evaluation.models], paths)
    for entry in evaluation.models:
        # A run has more metrics: those that depend on its temperature and weights.
        expected = {name: result.held_back[name] for name in {"hard_loss", *entry.sums}}
        assert_equal(f"{of_run}: sums of {entry.path.name}", entry.sums, expected)


TEXT_RUN = {"length": 9, "documents": "pad", "separator": "^", "dtype": "bfloat16", "share_vocabulary": "pad"}
TEXT_RUN |= {"accept_depth": 3}
CHATS: dict[str, Any] = {"length": 9, "documents": "pack", "dtype": "bfloat16", "share_vocabulary": "pad"}
CHATS |= {"accept_depth": 3, "student": "hub/student", "data": "chats.jsonl", "eval_data": "held.jsonl", "eval_rows": 7}
CHATS |= {"lora": 2, "lora_options": '{"lora_alpha": 3}', "turns": "last", "chat_template": "template.jinja"}
CHATS |= {"template_options": '{"brief": true}'}
PARTS = {"parts": "module:Class", "arguments": '{"a": 1}', "data": "data.bin", "teacher": "their", "temperature": 3.0}
ATTEMPT: dict[str, Any] = {"batch_size": 5, "threads": 3, "out": "elsewhere", "save_every": 2}
"""Settings of a run that do not change how its models are evaluated."""
CHOSEN: dict[str, dict[str, Any]] = {"nothing": {}, "length": {"length": 4}, "data": {"data": "other"}}
CHOSEN |= {"student": {"student": "another"}, "parts": {"parts": "other:Other"}, "outputs": {"teacher_outputs": "o"}}


@given(
    of_run=st.sampled_from([TEXT_RUN, CHATS, PARTS]),
    kind=st.sampled_from(["model", "checkpoint", "whole model"]),
    name=st.sampled_from(sorted(CHOSEN)),
)
@example(of_run=CHATS, kind="checkpoint", name="data")
@example(of_run=CHATS, kind="model", name="nothing")
@example(of_run=CHATS, kind="whole model", name="nothing")
@example(of_run=PARTS, kind="model", name="outputs")
def falsify_settings_of_an_evaluation_are_those_of_the_run(
    subject: Any, of_run: dict[str, Any], kind: str, name: str
) -> None:
    """Take settings that are not chosen from the manifest of the first model that has one.

    of_run: settings of the run that wrote the model. kind: a whole model has no adapter (`lora`), and its tokenizer and
    chat template beside it. name: the settings that are chosen for the evaluation.
    """
    if kind == "whole model":
        of_run = {key: value for key, value in of_run.items() if not key.startswith("lora")}
    recorded, wanted = Settings(**of_run, **ATTEMPT).json_values(), CHOSEN[name]
    manifest = {"settings": recorded} if kind != "checkpoint" else {"conditions": {}, "state": {"own": recorded}}
    with scratch() as directory:
        path = directory / "model"
        path.mkdir()
        (path / "manifest.json").write_text(json.dumps({"sha256": "digest", **manifest}))
        later = directory / "later"
        later.mkdir()
        (later / "manifest.json").write_text(json.dumps({"settings": {"length": 77}}))
        actual = subject.settings_of_run([directory, path, later], wanted).flat()
    expected = of_run | ({"save_every": ATTEMPT["save_every"]} if "parts" in of_run else {})
    if kind == "whole model" and "student" in of_run:
        expected |= {"student": str(path), "chat_template": None}
    # Settings of the run that a chosen setting excludes.
    excluded_by = {"student": ("student", "parts"), "parts": ("student", "parts"), "data": ["eval_data"]}
    excluded = (excluded_by | {"outputs": ["teacher"]}).get(name, ())
    expected = Settings(**{key: value for key, value in expected.items() if key not in excluded} | wanted).flat()
    wrong = {key: (value, expected[key]) for key, value in actual.items() if value != expected[key]}
    assert not wrong, f"{kind} of a run with {of_run}, {name} chosen: (actual, expected) settings are {wrong}"


@given(
    top_k=st.sampled_from([None, 3]),
    rows=st.sampled_from([{}, {"documents": "pack", "separator": "^"}]),
)
def falsify_stored_outputs_stand_for_their_teacher(subject: Any, top_k: int | None, rows: dict[str, Any]) -> None:
    """Evaluate with stored outputs after the teacher was removed; they are refused for another text or length."""
    with scratch() as directory:
        settings = small(directory, out=directory / "out", **rows)
        result = run(distill, settings)
        teacher = directory / "teacher"
        teacher.mkdir()
        save_decoder(result.teacher, teacher, {})
        options: dict[str, Any] = {"data": settings.data.path, "device": "cpu"}

        def evaluate(cache: Path | None = None, **others: Any) -> Any:
            paths = [directory / "out"]
            return subject.evaluate_saved(paths, subject.settings_of_run(paths, others), cache=cache)

        live = evaluate(**options, teacher=teacher)
        outputs = written(directory, "outputs", top_k=top_k, teacher=teacher, **rows)
        warmer = written(directory, "warmer", top_k=top_k, teacher=teacher, **rows, temperature=4.0)
        shutil.rmtree(teacher)
        options["teacher_outputs"] = outputs
        stored, report = evaluate(**options), subject.report(evaluate(**options))["teacher"]
        for path in (outputs, warmer):  # Both use one cache, which must not confuse them.
            pair = [evaluate(cache, **options | {"teacher_outputs": path}) for cache in (directory / "c", None)]
            assert_equal(f"sums of {path.name} with a cache", *(evaluation.models[0].sums for evaluation in pair))
        text = settings.data.path.read_bytes()
        for kind, change in {"length was": {"length": 9}, "data_sha256 was": {}}.items():
            if not change:
                settings.data.path.write_bytes(text[1:] + text[:1])
            assert_refused(kind, partial(evaluate, **options, **change), kind, kind=SettingError)
    case = f"{rows or 'sequences'} and {top_k or 'all'} tokens"
    entry = {"path": str(outputs), "sha256": live.teacher.digest, "outputs_sha256": stored.outputs.sha256}
    entry["temperature"] = None if top_k is None else 2.0
    assert_equal(f"the teacher in the report of {case}", report, entry)
    (actual,), (expected,) = stored.models, live.models
    names = expected.sums.keys() if top_k is None else {"hard_loss", "token_accuracy", "soft_loss"}
    assert_equal(f"metrics of {case}", actual.sums.keys(), names)
    totals = {name: total.sum for name, total in expected.sums.items()}
    if top_k is not None and not rows:
        tokens = cases.rows_of(torch.tensor(list(text[len(text) * 9 // 10 :])), settings.data.length)
        student, teacher = (model(tokens)[:, :-1].detach().double() for model in (result.student, result.teacher))
        totals["soft_loss"] = float(expected_divergence("forward_kl", student, teacher, top_k, 2.0))
    for name in actual.sums.keys() & totals.keys():
        count = expected.sums["hard_loss"].count
        assert_equal(f"tokens of {name} of {case}", actual.sums[name].count, count)
        total = actual.sums[name].sum
        assert_close(f"{name} of {case}", total, totals[name], 1e-5 * count, "the sum over scored bytes")


def falsify_as_much_is_evaluated_as_in_a_run(subject: Any) -> None:
    text = bytes(range(TOKENS)) * 17_000  # its last tenth is longer than the 2^16 bytes that a run evaluates
    with scratch() as directory:
        settings = chosen(directory, text, length=257, batch_size=64)
        (entry,) = subject.evaluate_saved([model(directory, 1)], settings).models
    count = entry.sums["hard_loss"].count
    assert_equal(f"predicted bytes of {len(text) // 10} held-back ones", count, (2**16 - 1) // 256 * 256)


@given(
    losses=st.lists(st.sampled_from([0.0, 1.25, 800.0]), min_size=1, max_size=3),
    compared=st.booleans(),
    whole=st.booleans(),
    documents=st.sampled_from([None, "pad", "pack"]),
    dtype=st.sampled_from(["float32", "bfloat16"]),
)
@example(losses=[1.25, 800.0], compared=True, whole=True, documents="pack", dtype="bfloat16")
@example(losses=[0.0], compared=False, whole=False, documents=None, dtype="float32")
def falsify_report_has_every_number(
    subject: Any, losses: list[float], compared: bool, whole: bool, documents: str | None, dtype: str
) -> None:
    with scratch() as directory:
        rows = {"documents": documents, "dtype": dtype}
        settings = chosen(directory, teacher=model(directory, 3) if compared else None, **rows)
        evaluation = subject.evaluate_saved([model(directory, 1)], settings, whole=whole)
        # Models with one digest and the drawn losses, one of them above the limit of a perplexity.
        models = [replace(evaluation.models[0], sums={"hard_loss": MetricSum(4 * loss, 4)}) for loss in losses]
        evaluation = replace(evaluation, models=models)
        report = json.loads(json.dumps(subject.report(evaluation), allow_nan=False))
    teacher = {"path": str(directory / "model-3"), "sha256": weights_digest(decoder(3))} if compared else None
    text = {"name": str(directory / "text"), "sha256": evaluation.text.digest}
    text["part"] = "whole" if whole else "held back"
    expected: dict[str, Any] = {"schema": "reference-trainer/evaluation/1", "text": text, "teacher": teacher}
    expected |= {"length": 3, "device": "cpu", **rows}
    assert_equal("the report", {name: report[name] for name in expected}, expected)
    assert_equal("the version", report["versions"]["torch"], torch.__version__)
    conditions, head, *lines = subject.table(evaluation)
    kinds = {None: "sequences of 3", "pad": "padded documents of at most 3", "pack": "packed documents of at most 3"}
    words = f"{text['name']} ({text['part']}): 4 bytes in {kinds[documents]}{', in bfloat16' * (dtype == 'bfloat16')}"
    words += f", against {teacher['path']}" if teacher else ""
    assert_equal("the first line of the table", conditions, words)
    for loss, entry, line in zip(losses, report["models"], lines, strict=True):
        sums = {"hard_loss": {"sum": 4 * loss, "count": 4}}
        metrics = {"hard_loss": loss, "student_perplexity": math.exp(min(loss, 20))}
        wanted = {"path": str(directory / "model-1"), "sha256": models[0].digest, "sums": sums, "metrics": metrics}
        assert_equal("an entry of the report", {name: entry[name] for name in wanted}, wanted)
        assert_equal(f"columns of the line {line!r} under {head!r}", len(line.split()), len(head.split()))
        cells = [cell for cell in line.split()[1:] if cell != "-"]
        assert_equal("a line of the table", cells, [f"{value:.6g}" for value in metrics.values()])


@given(
    unfit=st.lists(st.booleans(), min_size=1, max_size=4),
    threads=st.sampled_from([None, 1, 3]),
    variable=st.sampled_from([None, "2"]),
)
@example(unfit=[False], threads=3, variable="2")
@example(unfit=[False], threads=None, variable=None)
@example(unfit=[False], threads=None, variable="2")
def falsify_models_beside_an_unfit_one_are_evaluated(
    subject: Any, unfit: list[bool], threads: int | None, variable: str | None
) -> None:
    """Evaluate models, some of them missing, in a process in which torch uses 2 threads.

    unfit: whether each model is missing. threads: the setting. variable: OMP_NUM_THREADS.
    """
    tables, errors, before, counts = list[list[str]](), list[Exception](), torch.get_num_threads(), set[int]()

    def record(evaluation: Any) -> None:
        tables.append(subject.table(evaluation))
        counts.add(torch.get_num_threads())

    torch.set_num_threads(2)
    try:
        with scratch() as directory:
            paths = [directory / f"missing-{n}" if bad else model(directory, n) for n, bad in enumerate(unfit)]
            environment = {} if variable is None else {"OMP_NUM_THREADS": variable}
            settings = chosen(directory, threads=threads)
            subject.evaluate_saved(paths, settings, on_result=record, on_error=errors.append, environment=environment)
        after = torch.get_num_threads()
    finally:
        torch.set_num_threads(before)
    expected = threads or int(variable or 1)
    case = f"threads {threads}, {environment}, 2 before: threads of an evaluation, and after it"
    assert_equal(case, (counts, after), (set() if all(unfit) else {expected}, 2))
    fit = [str(path) for path, bad in zip(paths, unfit, strict=True) if not bad]
    assert_equal("evaluated models", [rows[-1].split()[0] for rows in tables], fit)
    assert all(rows[:-1] == tables[-1][: len(rows) - 1] for rows in tables), f"lines of the table change: {tables}"
    assert len(errors) == sum(unfit), f"{sum(unfit)} models are missing; the errors are {errors}, expected one for each"


def _flip_largest(path: Path) -> Path:
    """Change a byte of the largest file, in its last tensor, and return the path."""
    flip(max(path.iterdir(), key=lambda file: file.stat().st_size), -2)
    return path


def _other_checkpoint(directory: Path) -> Path:
    """Save a checkpoint whose student is not a model of the trainer."""
    content = Manifest(run_id="student", step=1, conditions={}, state={})
    return save_checkpoint(directory, content, {"student.w": torch.ones(2)})


def _unfinished_run(directory: Path) -> Path:
    """Return the output directory of a run that has a checkpoint only."""
    checkpoint(directory / "run" / "checkpoints", 1)
    return directory / "run"


UNFIT: dict[str, tuple[Callable[[Path], Path], Callable[[Path], dict[str, Any]], str]] = {
    "a changed model": (lambda d: _flip_largest(model(d, 1)), lambda d: {}, "model-1"),
    "a changed checkpoint": (lambda d: _flip_largest(checkpoint(d, 1)), lambda d: {}, "student-step1"),
    "a checkpoint of an own model": (_other_checkpoint, lambda d: {}, "no student of reference_trainer"),
    "a directory that is missing": (lambda d: d / "missing", lambda d: {}, "missing"),
    "too few tokens": (lambda d: model(d, 1, TOKENS - 1), lambda d: {}, "byte 39, and "),
    "logits that are not finite": (lambda d: model(d, 1, broken=True), lambda d: {}, "model-1"),
    "a large teacher": (lambda d: model(d, 1), lambda d: {"teacher": model(d, 2, TOKENS + 1)}, "in the evaluation of"),
    "a run without a model": (lambda d: _unfinished_run(d), lambda d: {}, "did you mean"),
    "its checkpoints": (lambda d: _unfinished_run(d) / "checkpoints", lambda d: {}, "run/checkpoints/student-latest?"),
    "less than a sequence": (lambda d: model(d, 1), lambda d: {"length": 9}, "at least 81"),
}
"""A path to evaluate, settings of the evaluation, and words of the refusal."""


def falsify_unfit_model_has_no_numbers(subject: Any) -> None:
    for kind, (make, settings_of, word) in UNFIT.items():
        with scratch() as directory:
            paths = [model(directory, 9), make(directory)]
            call = partial(subject.evaluate_saved, paths, chosen(directory, **settings_of(directory)))
            try:
                evaluation = call()
            except TrainerError as error:  # a command prints the notes too
                message = "; ".join([str(error), *getattr(error, "__notes__", [])])
                assert word in message, f"{kind}: the message is {message!r}; expected it to contain {word!r}"
            else:
                raise AssertionError(f"{kind}: expected a TrainerError; evaluated {evaluation.models}")


IDENTITY = {"data": "a", "length": 3}


@given(ranks=st.sampled_from([3, 2]))
def falsify_entry_is_produced_once(subject: Any, ranks: int) -> None:
    with scratch() as directory:
        cache, productions = directory / "cache", directory / "productions"
        productions.mkdir()

        def work(rank: int) -> str:
            def produce(place: Path) -> None:
                (productions / str(rank)).touch()
                (place / "half").write_text("half")
                time.sleep(0.2)  # so that the other processes request the entry meanwhile
                (place / "value").write_text(str(rank))

            entry = subject.produce_once(cache, "kind", IDENTITY, produce)
            return f"{(entry / 'half').read_text()} {(entry / 'value').read_text()}"

        contents = run_ranks(ranks, work)
        producing = sorted(path.name for path in productions.iterdir())
        assert len(producing) == 1, f"of {ranks} processes, {producing} produce the entry; expected one"
        assert contents == [f"half {producing[0]}"] * ranks, f"{ranks} processes read {contents}; expected one content"
        assert len(_entries(cache)) == 1, f"{ranks} processes left the entries {_entries(cache)}; expected one"


def _entries(cache: Path) -> dict[str, int]:
    """Return the modification time of each entry of a cache, in ns."""
    return {path.name: path.stat().st_mtime_ns for path in cache.iterdir() if not path.name.endswith(".lock")}


DAMAGE: dict[str, Callable[[Path], object]] = {
    "a changed byte": lambda entry: (entry / "value").write_bytes(b"whale"),
    "a shorter file": lambda entry: (entry / "value").write_bytes(b"whol"),
    "a missing file": lambda entry: (entry / "value").unlink(),
    "a further file": lambda entry: (entry / "more").touch(),
    "a directory": lambda entry: (entry / "more").mkdir(),
    "no manifest": lambda entry: (entry / "manifest.json").unlink(),
    "half a manifest": lambda entry: (entry / "manifest.json").write_text("{"),
    "another identity": lambda entry: reconfigure(entry / "manifest.json", identity={"data": "b"}),
}


def falsify_damaged_entry_is_produced_again(subject: Any) -> None:
    productions = list[Path]()

    def produce(place: Path) -> None:
        productions.append(place)
        (place / "value").write_text("whole")

    def fail(place: Path) -> None:
        (place / "value").write_text("half")
        raise ValueError("on purpose")

    with scratch() as directory:
        cache = directory / "cache"
        entry = subject.produce_once(cache, "kind", IDENTITY, produce)
        other = subject.produce_once(cache, "kind", IDENTITY | {"length": 4}, produce)
        assert entry != other and len(productions) == 2, f"two identities have the entries {entry} and {other}"
        for count, (kind, damage) in enumerate(DAMAGE.items(), 1):
            damage(entry)
            again = subject.produce_once(cache, "kind", IDENTITY, produce)
            assert_equal(f"{kind}: the entry", (again, (again / "value").read_text()), (entry, "whole"))
            assert_equal(f"{kind}: productions", len(productions), 2 + count)
            assert_equal(f"{kind}: entries set aside", len(list(cache.glob("*.damaged-*"))), count)
        (cache / f".{entry.name}.partial-killed").mkdir()
        before = _entries(cache)
        message = refusal(partial(subject.produce_once, cache, "kind", {"data": "c"}, fail), ValueError)
        assert_equal("the error of a production", message, "on purpose")
        assert_equal("entries after a failed production", _entries(cache).keys(), before.keys())
        cache = cache.rename(directory / "moved")
        moved = subject.produce_once(cache, "kind", IDENTITY, produce)
        assert_equal("a moved entry, and productions", (moved.parent, len(productions)), (cache, 2 + len(DAMAGE)))
        # The next production removes partial entries of killed processes.
        (moved / "value").unlink()
        subject.produce_once(cache, "kind", IDENTITY, produce)
        assert_equal("partial entries", list(cache.glob(".*partial*")), [])


@given(order=st.permutations(range(4)), again=st.integers(0, 3), room=st.integers(1, 3))
@example(order=(0, 1, 2, 3), again=0, room=1)
def falsify_entries_used_last_are_kept(subject: Any, order: Sequence[int], again: int, room: int) -> None:
    """Use four entries, one of them again, and limit the size of the cache.

    order: the order in which the entries are used, an hour ago. again: the entry that is used now. room: the number of
    entries that fit.
    """

    def use(number: int) -> Any:
        return subject.used_entry(cache, "kind", {"number": number}, lambda place: (place / "value").write_text("x"))

    def remaining() -> list[int]:
        return sorted(number for number, entry in entries.items() if entry.exists())

    with scratch() as directory:
        cache, entries = directory / "cache", dict[int, Path]()
        for turn, number in enumerate(order):
            with use(number) as entries[number]:
                pass
            for path in (entries[number] / "manifest.json", entries[number]):
                os.utime(path, (time.time() - 3600 + turn,) * 2)
        with use(again):
            pass
        size = sum(file.stat().st_size for file in entries[again].iterdir())
        subject.keep_within(cache, "kind", room * size)
        by_use = [number for number in order if number != again] + [again]
        case = f"of entries used in the order {by_use}, {room} fit"
        assert_equal(f"{case}: remaining entries", remaining(), sorted(by_use[-room:]))
        with use(again):
            subject.keep_within(cache, "kind", 0)
            assert_equal(f"{case}; a limit of 0 while {again} is in use: remaining entries", remaining(), [again])
        subject.keep_within(cache, "kind", 0)
        assert_equal(f"{case}; a limit of 0: remaining entries", remaining(), [])


@given(compared=st.booleans())
def falsify_cached_evaluation_is_that_in_memory(subject: Any, compared: bool) -> None:
    with scratch() as directory:
        options: dict[str, Any] = {"teacher": model(directory, 3), "accept_depth": 2} if compared else {}
        paths, cache = [model(directory, 1), checkpoint(directory, 2)], directory / "cache"

        def sums(text: bytes = TEXT, batch_size: int = 4, **where: Any) -> list[Any]:
            settings = chosen(directory, text, batch_size=batch_size, **options)
            return [entry.sums for entry in subject.evaluate_saved(paths, settings, **where).models]

        in_memory, first = sums(), sums(cache=cache)
        entries, cache = _entries(cache), cache.rename(directory / "moved")
        forwards = list[int]()
        with register_module_forward_hook(lambda *_: forwards.append(1)):
            second = sums(batch_size=1, cache=cache)
        assert_equal("forwards of an evaluation whose sums are in the cache", len(forwards), 0)
        assert in_memory == first == second, f"sums are {first}, then {second} with a cache; {in_memory} without"
        assert len(entries) == 2, f"two models have the entries {entries}; expected one each"
        assert_equal("entries after a second evaluation", _entries(cache), entries)
        for name, value in {"versions": {"torch": "another"}, "device_name": "another"}.items():
            with mock.patch.object(subject, name, return_value=value):
                before = len(_entries(cache))
                sums(cache=cache)
            assert_equal(f"new entries with another {name}", len(_entries(cache)) - before, len(paths))
        edited = sums(TEXT[::-1], cache=cache)
        assert_equal("sums of a text that was edited in place", edited, sums(TEXT[::-1]))
    assert edited != in_memory, f"the sums are {edited} before and after the text was edited in place"


WORDS = st.one_of(st.none(), st.text(max_size=3), st.sampled_from(["a", "a|b", "b", 'a","', "None"]))
VALUES: dict[str, st.SearchStrategy[Any]] = {"length": st.integers(2, 9), "accept_depth": st.integers(0, 9)}
VALUES["top_k"] = st.one_of(st.none(), st.integers(1, 9))
JOINED = [{"data": "a|", "documents": "b"}, {"data": "a", "documents": "|b"}]
SPLIT = [{"own": "x|y", "part": "z"}, {"own": "x", "part": "y|z"}]
"""Pairs of values that are equal if their texts are joined."""


@given(data=st.data())
def falsify_each_field_changes_the_digest(subject: Any, data: st.DataObject) -> None:
    names = [field.name for field in fields(subject.EvalConfig)]
    assert len(names) == 16, f"an identity has the {len(names)} fields {names}; expected 16"
    drawn = {name: data.draw(VALUES.get(name, WORDS), label=name) for name in names}
    config = subject.EvalConfig(**drawn)
    assert config.digest == replace(config).digest, f"two equal identities {drawn} have different digests"
    for name in names:
        other = data.draw(VALUES.get(name, WORDS), label=name)
        is_equal = replace(config, **{name: other}).digest == config.digest
        assert_equal(f"with {name} {other!r} in {drawn}, equal digests", is_equal, other == drawn[name])
    for first, second in (JOINED, SPLIT):
        digests = {replace(config, **values, dtype="").digest for values in (first, second)}
        assert len(digests) == 2, f"{first} and {second} have one digest: {digests}"
    assert_equal("digest in JSON", config.in_json()["sha256"], config.digest)


def falsify_identity_is_of_contents(subject: Any) -> None:
    with scratch() as directory:
        student, teacher, copy = model(directory, 1), model(directory, 2), directory / "copy"
        copy.write_bytes(TEXT)

        def digest(text: bytes = TEXT, whole: bool = False, **options: Any) -> str:
            settings = chosen(directory, text, **{"teacher": teacher, **options})
            return str(subject.evaluate_saved([student], settings, whole=whole).config.digest)

        def scaled(scale: float, **options: Any) -> str:
            arguments = json.dumps({"scale": scale})
            return digest(parts="falsifiers.evaluation.cases:Scaled", arguments=arguments, **options)

        def tokenized(tokenizer: str, template: str) -> str:
            arguments = json.dumps({"tokenizer": tokenizer, "chat_template": template})
            return digest(parts="falsifiers.evaluation.cases:Tokenized", arguments=arguments)

        unchanged = {"batch_size": digest(batch_size=7), "a path": digest(data=copy), "seed": digest(seed=3, lr=0.5)}
        digests = {
            "the settings": digest(),
            "the text in place": digest(TEXT[::-1]),
            "whole": digest(whole=True),
            "another teacher": digest(teacher=model(directory, 3)),
            "no teacher": digest(teacher=None),
            "length": digest(length=4),
            "documents": digest(documents="pad"),
            "length of documents": digest(documents="pad", length=4),
            "dtype": digest(dtype="bfloat16"),
            "separator": digest(documents="pad", separator="\x07"),
            "vocabulary": digest(share_vocabulary="pad"),
            "accept_depth": digest(accept_depth=2),
            **{f"an own evaluation with the argument {scale}": scaled(scale) for scale in (1.0, 2.0)},
            "layers at first": scaled(1.0, feature_weight=0.5, feature_layers="1:1"),
            "layers at last": scaled(1.0, feature_weight_end=0.5, feature_layers="0:1"),
            **{f"tokenizer and template {pair}": tokenized(*pair) for pair in (("a", "a"), ("b", "a"), ("a", "b"))},
        }
        # Settings that need a teacher have no effect without one.
        unused = digest(teacher=None, accept_depth=2, share_vocabulary="pad")
    changes = [name for name, other in unchanged.items() if other != digests["the settings"]]
    assert_equal("settings that change the identity, and must not", changes, [])
    equal_pairs = [f"{a} and {b}" for a, b in itertools.combinations(digests, 2) if digests[a] == digests[b]]
    assert_equal("different evaluations with one identity", equal_pairs, [])
    assert_equal("identity without a teacher, with settings that need one", unused, digests["no teacher"])


def falsify_identity_of_a_run_has_its_top_k(subject: Any) -> None:
    with scratch() as directory:

        def digest(name: str, **options: Any) -> str:
            run(subject, small(directory, out=directory / name, **options))
            return str(json.loads((directory / name / "manifest.json").read_text())["evaluation"]["sha256"])

        live = digest("live")
        outputs = {top_k: written(directory, f"outputs-{top_k}", top_k=top_k) for top_k in (None, 2, 3)}
        stored = {top_k: digest(f"run-{top_k}", teacher_outputs=path) for top_k, path in outputs.items()}
    assert_equal("identity with stored outputs of all tokens, compared with the live teacher", stored[None], live)
    assert len({*stored.values()}) == 3, f"identities of outputs of all, 2 and 3 tokens are not different: {stored}"
