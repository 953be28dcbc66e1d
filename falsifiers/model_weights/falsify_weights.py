"""Attacks on saved weights: a student that begins with them, their export, and the decoder that they make."""

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
"""Steps of the run whose last checkpoint is read."""
PLACES = [(1, "ddp"), (2, "ddp"), (3, "ddp"), (2, "fsdp2"), (3, "fsdp2")]
"""Numbers of ranks and strategies."""
STEP = "student-step2"


class Recording(Callback):
    """Callback that writes whole weights, at the begin and the end of a run, on each rank."""

    def __init__(self, directory: Path, rank: int) -> None:
        self.directory, self.rank = directory, rank

    def attach(self, pipeline: Any) -> None:
        self.run = pipeline

    def on_train_begin(self, context: Any) -> None:
        assert context.step == 0, f"the run begins at step {context.step}"
        state = {id(parameter): values for parameter, values in self.run.optimizer.state.items()}
        assert not state, f"the optimizer begins with the state of {len(state)} parameters"
        self._write("begin")

    def on_train_end(self, context: Any) -> None:
        self._write("end")

    def _write(self, name: str) -> None:
        state = self.run.student.state_dict() | {f"P{k}": p for k, p in enumerate(self.run.features.parameters)}
        tensors = {key: gather_tensor(value.detach()).clone() for key, value in state.items()}
        save_file(tensors, self.directory / f"{name}-{self.rank}")


def _saved(make: Any, directory: Path, place: tuple[int, str], **changes: Any) -> Path:
    """Return the last checkpoint of a run."""
    ranks, strategy = place
    chosen = settings(directory, "source", strategy=strategy, max_steps=SAVED, save_every=SAVED, **changes)
    (directory / "saved").mkdir()
    ends = launched(make, chosen, ranks, lambda rank: [Recording(directory / "saved", rank)])
    assert_no_error(f"the source of {ranks} ranks with {strategy}", ends)
    return directory / "source" / "checkpoints" / STEP


@given(saved=st.sampled_from(PLACES), begun=st.sampled_from(PLACES))
@example(saved=(2, "fsdp2"), begun=(3, "fsdp2"))
def falsify_weights_are_those_of_the_checkpoint(subject: Any, saved: tuple[int, str], begun: tuple[int, str]) -> None:
    make = matching(subject)
    with scratch() as directory:
        source = _saved(make, directory, saved, feature_weight=0.5)
        (directory / "begun").mkdir()
        ranks, strategy = begun
        chosen = settings(directory, "out", strategy=strategy, max_steps=1, feature_weight=0.5, init_from=source)
        ends = launched(make, chosen, ranks, lambda rank: [Recording(directory / "begun", rank)])
        where = f"saved by {saved}, begun by {begun}"
        assert_no_error(where, ends)
        expected = load_file(directory / "saved" / "end-0")
        for rank in range(ranks):
            assert_same(f"{where}, rank {rank}", load_file(directory / "begun" / f"begin-{rank}"), expected)


MISFITS: dict[str, tuple[Any, Callable[[], torch.nn.Module] | None, str]] = {
    "missing": (shutil.rmtree, None, "expected a checkpoint"),
    "damaged": (lambda path: flip(path / "rank-00000.safetensors"), None, "rank-00000.safetensors has the SHA-256"),
    "of another width": (None, lambda: Model(7, seed=1), "embed.weight is float32 [11, 5]; expected float32 [11, 7]"),
    "of another dtype": (None, lambda: Model(5, seed=1).double(), "is float32 [11, 5]; expected float64 [11, 5]"),
    "of more layers": (None, lambda: torch.nn.ModuleDict({"x": Model(5, seed=1)}), ": missing ["),
}


@given(kind=st.sampled_from(list(MISFITS)), saved=st.sampled_from(PLACES), begun=st.sampled_from(PLACES))
@example(kind="of another width", saved=(1, "ddp"), begun=(2, "ddp"))
def falsify_misfits_are_refused(subject: Any, kind: str, saved: tuple[int, str], begun: tuple[int, str]) -> None:
    change, student, words = MISFITS[kind]
    make = small_distillation(subject)
    with scratch() as directory:
        source = _saved(make, directory, saved)
        if change is not None:
            change(source)

        class Other(make):
            def make_student(self) -> Any:
                return super().make_student() if student is None else student()

        ranks, strategy = begun
        with unchanged_files(directory, kind):
            ends = launched(Other, settings(directory, "out", strategy=strategy, init_from=source), ranks)
        for rank, end in enumerate(ends):
            where = f"{kind}, saved by {saved}, begun by {begun}, rank {rank}"
            assert words in end.error and STEP in end.error, f"{where}: {end.error or 'it was accepted'}"


@given(cut=st.integers(1, 4), begun=st.sampled_from([(1, "ddp"), (2, "fsdp2")]))
def falsify_source_is_recorded(subject: Any, cut: int, begun: tuple[int, str]) -> None:
    make = small_distillation(subject)
    with scratch() as directory:
        source, (ranks, strategy) = _saved(make, directory, (2, "ddp")), begun
        digest = json.loads((source / "manifest.json").read_text())["sha256"]
        uninterrupted = launched(make, settings(directory, "uninterrupted", strategy=strategy, init_from=source), ranks)
        chosen = settings(directory, "cut", strategy=strategy, init_from=source)
        launched(make, chosen, ranks, lambda rank: [Cut(cut)])
        shutil.rmtree(directory / "source")
        again = {"strategy": strategy, "resume": Path("latest"), "force": True}
        other = launched(make, settings(directory, "cut", **again, init_from=directory / "other"), ranks)
        words = ("init_from was", str(source), str(directory / "other"))
        assert all(word in other[0].error for word in words), f"resumed with another source: {other[0].error}"
        relative = Path(os.path.relpath(source))
        resumed = launched(make, settings(directory, "cut", **again, init_from=relative), ranks)
        assert_no_error(f"{begun}, resumed after step {cut}", [*uninterrupted, *resumed])
        assert_same_lines(f"{begun}, cut after step {cut}", directory, "cut", "uninterrupted")
        assert_same_end(f"{begun}, cut after step {cut}", resumed[0], uninterrupted[0])
        expected = {"path": str(source.resolve()), "step": SAVED, "sha256": digest}
        files = [directory / out / "manifest.json" for out in ("uninterrupted", "cut")]
        seen = {str(file): json.loads(file.read_text()).get("initial_weights") for file in files}
        for path in sorted((directory / "cut" / "checkpoints").glob("student-step*/manifest.json")):
            seen[str(path)] = json.loads(path.read_text())["state"]["initial"]
        wrong = {name: value for name, value in seen.items() if value != expected}
        assert not wrong, f"expected {expected} in every manifest; these differ: {wrong}"


def _decoder(width: int) -> Decoder:
    decoder = Decoder(DecoderConfig(vocab_size=3, layers=1, width=width, heads=1))
    for parameter in decoder.parameters():
        parameter.data.fill_(width)
    return decoder


def _digests(directory: Path) -> dict[str, str]:
    files = [path for path in directory.iterdir() if not path.match(".*.partial")]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


ENDINGS = {"kill -9": (kill, "killed"), "an exception": (interrupt, "interrupted")}


def falsify_manifest_always_matches_files(subject: Any) -> None:
    old, export = _decoder(2), partial(subject.save_decoder, _decoder(4))
    for ending, (act, expected) in ENDINGS.items():
        for moment in itertools.count(1):
            with scratch() as directory:
                subject.save_decoder(old, directory, {"of": "old"})
                ended = ended_before(moment, directory, partial(export, directory, {"of": "new"}), act)
                when = f"ended by {ending} before operation {moment} on its files"
                digests = _digests(directory)
                if digests.pop("manifest.json", None):
                    manifest = json.loads((directory / "manifest.json").read_text())
                    case = f"{when}, the manifest of the {manifest['of']} model is beside others"
                    assert manifest["sha256"] == digests, case
                with suppress(ValueError):  # a refusal
                    _assert_one_model(subject.load_decoder(directory), when)
                if ended == "done":
                    written = json.loads((directory / "manifest.json").read_text())["of"]
                    assert written == "new", f"a finished export left the manifest of the {written} model"
                    break
                assert ended == expected, f"{when}, the export ended in another way: {ended}"


def _assert_one_model(model: Any, when: str) -> None:
    """Assert that all weights of a model of `_decoder` are its width."""
    width = model.config.width
    values = {float(x) for value in model.state_dict().values() for x in value.unique()}
    assert values == {float(width)}, f"{when}, a model of width {width} is loaded with the weights {sorted(values)}"


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
        assert torch.equal(before, torch.get_rng_state()), "loading a model moved the process's random numbers"
        digest, written = subject.weights_digest(module), _digests(directory)["model.safetensors"]
        assert digest == written, f"the digest of the weights is {digest}, the digest of the file {written}"
    assert again.config == module.config, f"saved as {module.config}, read as {again.config}"
    for name, value in module.state_dict().items():
        read = again.state_dict()[name]
        same = read.dtype is value.dtype and torch.equal(read, value.cpu())
        assert same, f"{name} was {value.flatten()[:3]}, and is read as {read.flatten()[:3]}"


@given(tied=st.booleans(), transposed=st.booleans(), values=st.sampled_from([torch.float32, torch.bfloat16]))
def falsify_digest_is_that_of_the_values(
    subject: Any, device: str, tied: bool, transposed: bool, values: torch.dtype
) -> None:
    weight = torch.arange(64.0, device=device).to(values).view(8, 8)
    module, first = torch.nn.Module(), torch.nn.Parameter(weight.T if transposed else weight)
    module.register_parameter("z", first)
    module.register_parameter("a", first if tied else torch.nn.Parameter(weight[4:]))
    weights = {name: value.cpu().clone().contiguous() for name, value in module.state_dict().items()}
    seen, expected = subject.weights_digest(module), hashlib.sha256(save(weights)).hexdigest()
    assert seen == expected, f"the digest of {'tied ' * tied}weights is {seen}; expected {expected}"


FILES = ["model.safetensors", "config.json", "manifest.json"]
FAULTS: dict[str, tuple[Exception | None, str]] = {
    "a full disk": (OSError(28, "No space left on device", ".partial"), "No space left on device"),
    "an error of the library": (SafetensorError("no such dtype"), "no such dtype"),
    "a removed directory": (None, "No such file or directory"),
}


@given(failing=st.sampled_from(FILES), kind=st.sampled_from(list(FAULTS)), older=st.booleans())
def falsify_failed_export_leaves_no_new_file(subject: Any, failing: str, kind: str, older: bool) -> None:
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
        left = file_digests(directory)
    odd = [name for name, content in left.items() if name == "manifest.json" or before.get(name) != content]
    assert not odd, f"with {kind} at {failing}, {odd} of the new model, or a manifest, is left"


STEPS = 2
"""Steps of the run whose model is read."""


def _first(subject: Any, directory: Path, seed: int = 0) -> Path:
    run(subject, small(directory, out=directory / "first", seed=seed, max_steps=STEPS, save_every=STEPS))
    return directory / "first"


@given(seed=st.integers(0, 9), exported=st.booleans())
def falsify_model_begins_a_run_like_its_last_checkpoint(subject: Any, seed: int, exported: bool) -> None:
    """exported: the model is the student of that checkpoint, exported, not the one that the run has written."""
    from reference_trainer.pipeline.checkpoint_list import export_checkpoint

    with scratch() as directory:
        model = first = _first(subject, directory, seed)
        if exported:
            model = directory / "model"
            export_checkpoint(first, STEPS, model)
        for out, source in (("ours", model), ("theirs", first / "checkpoints" / f"student-step{STEPS}")):
            run(subject, small(directory, out=directory / out, seed=7, log_every=1, init_from=source))
        when = f"seed {seed}, exported {exported}"
        assert_same_lines(f"{when}, compared with a checkpoint", directory, "ours", "theirs")
        ends = [(directory / out / "model.safetensors").read_bytes() for out in ("ours", "theirs")]
        assert ends[0] == ends[1], f"{when}: the weights at the end differ from the run that began with a checkpoint"
        seen = json.loads((directory / "ours" / "manifest.json").read_bytes())["initial_weights"]
        digest = hashlib.sha256((model / "manifest.json").read_bytes()).hexdigest()
        expected = {"path": str(model), "step": STEPS, "sha256": digest}
        assert seen == expected, f"{when}: the manifest records {seen}; expected {expected}"


CASES: dict[str, tuple[Callable[[Path], object] | None, dict[str, Any], str]] = {
    "a flipped bit": (lambda model: flip(model / "model.safetensors"), {}, "does not match the files beside it"),
    "no manifest": (lambda model: (model / "manifest.json").unlink(), {}, "cannot verify"),
    "no step": (lambda model: reconfigure(model / "manifest.json", result={}), {}, "names no step"),
    "another width": (None, {"width": 32}, "does not fit the student of this run"),
    "another dtype": (None, {"dtype": "float64"}, "does not fit the student of this run"),
}


@given(kind=st.sampled_from(list(CASES)))
def falsify_other_models_are_refused(subject: Any, kind: str) -> None:
    damage, changes, words = CASES[kind]
    with scratch() as directory:
        model = _first(subject, directory)
        if damage is not None:
            damage(model)
        chosen = small(directory, out=directory / "out", init_from=model, **changes)
        with unchanged_files(directory, kind):
            message = refused(subject, chosen)
        assert words in message and str(model) in message, f"{kind}: the run says {message!r}; expected {words!r}"


WEIGHTS, CONFIG = "model.safetensors", "config.json"


def _not_finite(path: Path) -> None:
    weights = load_file(path)
    weights["norm.weight"][3] = float("nan")
    save_file({name: tensor.clone() for name, tensor in weights.items()}, path)


UNFIT: dict[str, Callable[[Path], object]] = {
    "no directory": lambda d: [p.unlink() for p in d.iterdir()] + [d.rmdir()],
    "weights cut in half": lambda d: os.truncate(d / WEIGHTS, (d / WEIGHTS).stat().st_size // 2),
    "no weights": lambda d: (d / WEIGHTS).unlink(),
    "weights of another shape": lambda d: reconfigure(d / CONFIG, width=32),
    "another kind of model": lambda d: reconfigure(d / CONFIG, model_type="llama"),
    "an unknown setting": lambda d: reconfigure(d / CONFIG, experts=8),
    "a configuration that is not an object": lambda d: (d / CONFIG).write_text("[]"),
    "NaN weights": lambda d: _not_finite(d / WEIGHTS),
}


@given(kind=st.sampled_from(list(UNFIT)))
def falsify_invalid_model_is_refused(subject: Any, kind: str) -> None:
    with scratch() as root:
        directory = root / "model"
        directory.mkdir()
        subject.save_decoder(Decoder(DecoderConfig(vocab_size=8, layers=1, width=16, heads=1)), directory, {})
        assert subject.load_decoder(directory).config.width == 16, "a model that was just written is another one"
        subject.verify_manifest(directory)
        UNFIT[kind](directory)
        assert_refused(f"{kind}, by its manifest", lambda: subject.verify_manifest(directory), str(directory))
        assert_refused(kind, lambda: subject.load_decoder(directory), str(directory))
