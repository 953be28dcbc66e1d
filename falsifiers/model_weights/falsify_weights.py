"""Attacks on initial weights of a run (`init_from`), on the export of a model, and on reading it back.

A place is a number of ranks and a strategy. The source of a run is the checkpoint or model of `init_from`.
"""

import hashlib
import itertools
import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st
from safetensors import SafetensorError
from safetensors.torch import load_file, save, save_file

from falsifiers.checkpoint_files.saved import assert_same
from falsifiers.rank_runs.falsify_runs import assert_no_error, assert_same_end, launched, matching
from falsifiers.resume.runs import Cut, Model, settings, small_distillation
from falsifiers.support.assertions import assert_equal
from falsifiers.support.interruptions import ended_before, interrupt, kill
from falsifiers.support.oracles import assert_refused
from falsifiers.support.runs import (
    assert_same_lines,
    file_digests,
    flip,
    reconfigure,
    refused,
    run,
    scratch,
    small,
    unchanged_files,
)
from reference_trainer import Callback, OutputError
from reference_trainer.models.decoder import Decoder, DecoderConfig
from reference_trainer.ranks.parallel import gather_tensor
from reference_trainer.storage.files import atomic_write

SAVED = 2
"""Number of steps of the run that saves the source."""
SAVED_PLACES = st.sampled_from([(2, "fsdp2"), (3, "fsdp2"), (1, "ddp"), (2, "ddp"), (3, "ddp")])
BEGUN_PLACES = st.sampled_from([(2, "ddp"), (1, "ddp"), (3, "ddp"), (2, "fsdp2"), (3, "fsdp2")])
"""Numbers of ranks and strategies. The first ones are always tried: a run without shards begins with the checkpoint
of a run with shards."""
STEP = "student-step2"


class Recording(Callback):
    """Callback that writes the full weights, gathered from all ranks, when a run begins and ends, once per rank."""

    def __init__(self, directory: Path, rank: int) -> None:
        self.directory, self.rank = directory, rank

    def attach(self, pipeline: Any) -> None:
        self.run = pipeline

    def on_train_begin(self, context: Any) -> None:
        assert context.step == 0, f"the run begins at step {context.step}; expected 0"
        count = len(self.run.optimizer.state)
        assert count == 0, f"the optimizer begins with the state of {count} parameters; expected none"
        self._write("begin")

    def on_train_end(self, context: Any) -> None:
        self._write("end")

    def _write(self, name: str) -> None:
        state = self.run.student.state_dict() | {f"P{k}": p for k, p in enumerate(self.run.features.parameters)}
        tensors = {key: gather_tensor(value.detach()).clone() for key, value in state.items()}
        save_file(tensors, self.directory / f"{name}-{self.rank}")


def _save_source(make: Any, directory: Path, place: tuple[int, str], **changes: Any) -> Path:
    """Train at this place, and return the last checkpoint."""
    ranks, strategy = place
    chosen = settings(directory, "source", strategy=strategy, max_steps=SAVED, save_every=SAVED, **changes)
    (directory / "saved").mkdir()
    ends = launched(make, chosen, ranks, lambda rank: [Recording(directory / "saved", rank)])
    assert_no_error(f"the source of {ranks} ranks with {strategy}", ends)
    return directory / "source" / "checkpoints" / STEP


@given(saved=SAVED_PLACES, begun=BEGUN_PLACES)
@example(saved=(2, "fsdp2"), begun=(3, "fsdp2"))
def falsify_weights_are_those_of_the_checkpoint(subject: Any, saved: tuple[int, str], begun: tuple[int, str]) -> None:
    """Save a checkpoint at one place, and begin a run with it at another."""
    make = matching(subject)
    with scratch() as directory:
        source = _save_source(make, directory, saved, feature_weight=0.5)
        (directory / "begun").mkdir()
        ranks, strategy = begun
        chosen = settings(directory, "out", strategy=strategy, max_steps=1, feature_weight=0.5, init_from=source)
        ends = launched(make, chosen, ranks, lambda rank: [Recording(directory / "begun", rank)])
        case = f"saved by {saved}, begun by {begun}"
        assert_no_error(case, ends)
        expected = load_file(directory / "saved" / "end-0")
        for rank in range(ranks):
            assert_same(f"{case}, rank {rank}", load_file(directory / "begun" / f"begin-{rank}"), expected)


UNFIT_CHECKPOINTS: dict[str, tuple[Any, Callable[[], torch.nn.Module] | None, str]] = {
    "missing": (shutil.rmtree, None, "expected a checkpoint"),
    "damaged": (lambda path: flip(path / "rank-00000.safetensors"), None, "rank-00000.safetensors has the SHA-256"),
    "of another width": (None, lambda: Model(7, seed=1), "embed.weight is float32 [11, 5]; expected float32 [11, 7]"),
    "of another dtype": (None, lambda: Model(5, seed=1).double(), "is float32 [11, 5]; expected float64 [11, 5]"),
    "of more layers": (None, lambda: torch.nn.ModuleDict({"x": Model(5, seed=1)}), ": missing ["),
}
"""The change of the checkpoint, the student of the run that begins with it, and words of the refusal."""


@given(saved=SAVED_PLACES, begun=BEGUN_PLACES)
def falsify_misfits_are_refused(subject: Any, saved: tuple[int, str], begun: tuple[int, str]) -> None:
    make, (ranks, strategy) = small_distillation(subject), begun
    with scratch() as directory:
        source = _save_source(make, directory, saved)
        for kind, (change, student, words) in UNFIT_CHECKPOINTS.items():
            unfit = directory / kind / STEP
            shutil.copytree(source, unfit)
            if change is not None:
                change(unfit)

            class OtherStudent(make):
                def make_student(self, student: Any = student) -> Any:
                    return super().make_student() if student is None else student()

            with unchanged_files(directory, kind):
                ends = launched(OtherStudent, settings(directory, "out", strategy=strategy, init_from=unfit), ranks)
            for rank, end in enumerate(ends):
                case = f"{kind}, saved by {saved}, begun by {begun}, rank {rank}: the error is {end.error!r}"
                assert words in end.error and str(unfit) in end.error, f"{case}; expected {words!r} and {str(unfit)!r}"


@given(cut=st.integers(1, 4), begun=st.sampled_from([(1, "ddp"), (2, "fsdp2")]))
def falsify_source_is_recorded(subject: Any, cut: int, begun: tuple[int, str]) -> None:
    """Interrupt a run that began with a checkpoint after step `cut`, remove the checkpoint, and resume the run."""
    make = small_distillation(subject)
    with scratch() as directory:
        source, (ranks, strategy) = _save_source(make, directory, (2, "ddp")), begun
        digest = json.loads((source / "manifest.json").read_text())["sha256"]
        uninterrupted = launched(make, settings(directory, "uninterrupted", strategy=strategy, init_from=source), ranks)
        chosen = settings(directory, "cut", strategy=strategy, init_from=source)
        launched(make, chosen, ranks, lambda rank: [Cut(cut)])
        shutil.rmtree(directory / "source")
        options = {"strategy": strategy, "resume": Path("latest"), "force": True}
        error = launched(make, settings(directory, "cut", **options, init_from=directory / "other"), ranks)[0].error
        missing = [w for w in ("init_from was", str(source), str(directory / "other")) if w not in error]
        assert not missing, f"resumed with another source, the error is {error!r}; expected {missing} in it"
        relative = Path(os.path.relpath(source))
        resumed = launched(make, settings(directory, "cut", **options, init_from=relative), ranks)
        assert_no_error(f"{begun}, resumed after step {cut}", [*uninterrupted, *resumed])
        assert_same_lines(f"{begun}, cut after step {cut}", directory, "cut", "uninterrupted")
        assert_same_end(f"{begun}, cut after step {cut}", resumed[0], uninterrupted[0])
        expected = {"path": str(source.resolve()), "step": SAVED, "sha256": digest}
        files = [directory / out / "manifest.json" for out in ("uninterrupted", "cut")]
        records = {str(file): json.loads(file.read_text()).get("initial_weights") for file in files}
        for path in sorted((directory / "cut" / "checkpoints").glob("student-step*/manifest.json")):
            records[str(path)] = json.loads(path.read_text())["state"]["initial"]
        assert len(records) > len(files), "the resumed run has no checkpoint, so no manifest of one was compared"
        wrong = {name: value for name, value in records.items() if value != expected}
        assert not wrong, f"manifests record the initial weights {wrong}; expected {expected}"


def _decoder(width: int) -> Decoder:
    """Return a decoder whose weights are all `width`, so that a mixture of two models is visible."""
    decoder = Decoder(DecoderConfig(vocab_size=3, layers=1, width=width, heads=1))
    for parameter in decoder.parameters():
        parameter.data.fill_(width)
    return decoder


def _digests(directory: Path) -> dict[str, str]:
    """Return the SHA-256 of the files of a directory by name, without partial files."""
    files = [path for path in directory.iterdir() if not path.match(".*.partial")]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


ENDINGS = {"kill -9": (kill, "killed"), "an exception": (interrupt, "interrupted")}


def falsify_manifest_always_matches_files(subject: Any) -> None:
    """Interrupt an export over an older model before its operation 1, 2, ... until an export is not interrupted."""
    old, export = _decoder(2), partial(subject.save_decoder, _decoder(4))
    for ending, (act, expected) in ENDINGS.items():
        for operation in itertools.count(1):
            with scratch() as directory:
                subject.save_decoder(old, directory, {"of": "old"})
                outcome = ended_before(operation, directory, partial(export, directory, {"of": "new"}), act)
                case = f"an export ended by {ending} before operation {operation} on its files"
                digests = _digests(directory)
                if digests.pop("manifest.json", None):
                    manifest = json.loads((directory / "manifest.json").read_text())
                    assert_equal(f"{case}: digests in the {manifest['of']} manifest", manifest["sha256"], digests)
                with suppress(ValueError):  # a directory without a complete model may be refused
                    _assert_one_model(subject.load_decoder(directory), case)
                if outcome == "done":
                    manifest = json.loads((directory / "manifest.json").read_text())
                    assert_equal("model in the manifest of a complete export", manifest["of"], "new")
                    break
                assert_equal(f"{case}: how the process ended", outcome, expected)


def _assert_one_model(model: Any, when: str) -> None:
    """Assert that all weights of a model of `_decoder` are its width."""
    width = model.config.width
    values = {float(x) for value in model.state_dict().values() for x in value.unique()}
    assert values == {float(width)}, f"{when}: all weights of the loaded model are {sorted(values)}; expected {width}"


@given(
    values=st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
    seed=st.integers(0, 9),
    transposed=st.booleans(),
)
def falsify_model_is_read_back_bit_for_bit(
    subject: Any, device: str, values: torch.dtype, seed: int, transposed: bool
) -> None:
    module = _decoder(4).to(values)
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        parameter.data.copy_(torch.randn(parameter.shape, generator=generator))
        if transposed and parameter.dim() == 2:
            parameter.data = parameter.data.T.contiguous().T
    module = module.to(device)
    with scratch() as directory:
        subject.save_decoder(module, directory, {})
        before = torch.get_rng_state()
        again = subject.load_decoder(directory)
        assert torch.equal(before, torch.get_rng_state()), "loading a model changed the global generator of torch"
        assert_equal("weights_digest", subject.weights_digest(module), _digests(directory)["model.safetensors"])
    assert_equal("configuration of the loaded model", again.config, module.config)
    assert_same("the loaded model", again.state_dict(), {name: x.cpu() for name, x in module.state_dict().items()})


@given(tied=st.booleans(), transposed=st.booleans(), values=st.sampled_from([torch.float32, torch.bfloat16]))
def falsify_digest_is_that_of_the_values(
    subject: Any, device: str, tied: bool, transposed: bool, values: torch.dtype
) -> None:
    weight = torch.arange(64.0, device=device).to(values).view(8, 8)
    module, first = torch.nn.Module(), torch.nn.Parameter(weight.T if transposed else weight)
    module.register_parameter("z", first)
    module.register_parameter("a", first if tied else torch.nn.Parameter(weight[4:]))
    weights = {name: value.cpu().clone().contiguous() for name, value in module.state_dict().items()}
    expected = hashlib.sha256(save(weights)).hexdigest()
    assert_equal(f"weights_digest, {tied=}, {transposed=}", subject.weights_digest(module), expected)


FILES = ["model.safetensors", "config.json", "manifest.json"]
FAULTS: dict[str, tuple[Exception | None, str]] = {
    "a full disk": (OSError(28, "No space left on device", ".partial"), "No space left on device"),
    "an error of the library": (SafetensorError("no such dtype"), "no such dtype"),
    "a removed directory": (None, "No such file or directory"),
}


@given(failing=st.sampled_from(FILES), kind=st.sampled_from(list(FAULTS)), older=st.booleans())
def falsify_failed_export_leaves_no_new_file(subject: Any, failing: str, kind: str, older: bool) -> None:
    """Fail while the file `failing` is written. older: whether the directory has another model."""
    fault, cause = FAULTS[kind]

    def write(path: Path, content: Callable[[Path], object]) -> None:
        if path.name == failing and fault is None:
            shutil.rmtree(path.parent)
        elif path.name == failing and fault is not None:
            raise fault
        atomic_write(path, content)

    with scratch() as root:
        directory = root / "out"
        directory.mkdir()
        if older:
            subject.save_decoder(_decoder(2), directory, {})
        before = file_digests(directory)
        export = partial(subject.save_decoder, _decoder(4), directory, {}, write_file=write)
        assert_refused(f"{kind} at {failing}", export, str(directory / failing), cause, kind=OutputError)
        after = file_digests(directory)
    unexpected = [name for name, digest in after.items() if name == "manifest.json" or before.get(name) != digest]
    assert not unexpected, f"{kind} at {failing}: files {unexpected}; expected no manifest and no file of the new model"


STEPS = 2
"""Number of steps of the run that writes the model."""


def _train_source(subject: Any, directory: Path, seed: int = 0) -> Path:
    """Train `STEPS` steps with a checkpoint at the end, and return the output directory."""
    run(subject, small(directory, out=directory / "first", seed=seed, max_steps=STEPS, save_every=STEPS))
    return directory / "first"


@given(seed=st.integers(0, 9), exported=st.booleans())
def falsify_model_begins_a_run_like_its_last_checkpoint(subject: Any, seed: int, exported: bool) -> None:
    """Begin a run with a model, and an equal run with the checkpoint of the model's last step.

    exported: whether the model is exported from the checkpoint; otherwise, it is the output of the run.
    """
    from reference_trainer.pipeline.checkpoint_list import export_checkpoint

    with scratch() as directory:
        model = output = _train_source(subject, directory, seed)
        if exported:
            model = directory / "model"
            export_checkpoint(output, STEPS, model)
        checkpoint = output / "checkpoints" / f"student-step{STEPS}"
        for out, source in (("from_model", model), ("from_checkpoint", checkpoint)):
            run(subject, small(directory, out=directory / out, seed=7, log_every=1, init_from=source))
        case = f"{seed=}, {exported=}"
        assert_same_lines(f"{case}, compared with a checkpoint", directory, "from_model", "from_checkpoint")
        digests = [file_digests(directory / out)["model.safetensors"] for out in ("from_model", "from_checkpoint")]
        assert_equal(f"{case}: digest of the final weights, compared with a run from the checkpoint", *digests)
        actual = json.loads((directory / "from_model" / "manifest.json").read_bytes())["initial_weights"]
        digest = hashlib.sha256((model / "manifest.json").read_bytes()).hexdigest()
        expected = {"path": str(model), "step": STEPS, "sha256": digest}
        assert_equal(f"{case}: initial_weights in the manifest", actual, expected)


UNFIT_MODELS: dict[str, tuple[Callable[[Path], object] | None, dict[str, Any], str]] = {
    "a flipped bit": (lambda model: flip(model / "model.safetensors"), {}, "does not match the files beside it"),
    "no manifest": (lambda model: (model / "manifest.json").unlink(), {}, "cannot verify"),
    "no step": (lambda model: reconfigure(model / "manifest.json", result={}), {}, "names no step"),
    "another width": (None, {"width": 32}, "does not fit the student of this run"),
    "another dtype": (None, {"dtype": "float64"}, "does not fit the student of this run"),
}


@given(kind=st.sampled_from(list(UNFIT_MODELS)))
def falsify_other_models_are_refused(subject: Any, kind: str) -> None:
    damage, changes, words = UNFIT_MODELS[kind]
    with scratch() as directory:
        model = _train_source(subject, directory)
        if damage is not None:
            damage(model)
        chosen = small(directory, out=directory / "out", init_from=model, **changes)
        with unchanged_files(directory, kind):
            message = refused(subject, chosen)
        missing = [word for word in (words, str(model)) if word not in message]
        assert not missing, f"{kind}: the message of the refusal is {message!r}; expected {missing} in it"


WEIGHTS, CONFIG = "model.safetensors", "config.json"


def _write_nan(path: Path) -> None:
    weights = load_file(path)
    weights["norm.weight"][3] = float("nan")
    save_file({name: tensor.clone() for name, tensor in weights.items()}, path)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "no directory": lambda d: [p.unlink() for p in d.iterdir()] + [d.rmdir()],
    "weights cut in half": lambda d: os.truncate(d / WEIGHTS, (d / WEIGHTS).stat().st_size // 2),
    "no weights": lambda d: (d / WEIGHTS).unlink(),
    "weights of another shape": lambda d: reconfigure(d / CONFIG, width=32),
    "another kind of model": lambda d: reconfigure(d / CONFIG, model_type="llama"),
    "an unknown setting": lambda d: reconfigure(d / CONFIG, experts=8),
    "a configuration that is not an object": lambda d: (d / CONFIG).write_text("[]"),
    "NaN weights": lambda d: _write_nan(d / WEIGHTS),
}


@given(kind=st.sampled_from(list(DAMAGES)))
def falsify_invalid_model_is_refused(subject: Any, kind: str) -> None:
    with scratch() as root:
        directory = root / "model"
        directory.mkdir()
        subject.save_decoder(Decoder(DecoderConfig(vocab_size=8, layers=1, width=16, heads=1)), directory, {})
        assert_equal("width of an undamaged model", subject.load_decoder(directory).config.width, 16)
        subject.verify_manifest(directory)
        DAMAGES[kind](directory)
        assert_refused(f"{kind}, by its manifest", lambda: subject.verify_manifest(directory), str(directory))
        assert_refused(kind, lambda: subject.load_decoder(directory), str(directory))
