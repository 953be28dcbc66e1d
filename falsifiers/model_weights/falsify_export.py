"""Attacks on the files of an export, also of one that fails. The subject is `storage.export`, or has its names."""

import hashlib
import itertools
import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import SafetensorError
from safetensors.torch import save

from falsifiers.support.interruptions import ended_before, interrupt, kill
from falsifiers.support.oracles import assert_refused
from falsifiers.support.runs import file_digests, scratch
from reference_trainer import OutputError
from reference_trainer.models.decoder import Decoder, DecoderConfig
from reference_trainer.storage.files import atomic_write


def _small(width: int) -> Any:
    decoder = Decoder(DecoderConfig(vocab_size=3, layers=1, width=width, heads=1))
    for parameter in decoder.parameters():
        parameter.data.fill_(width)
    return decoder


def _digests(directory: Path) -> dict[str, str]:
    return {
        p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in directory.iterdir() if not p.match(".*.partial")
    }


ENDINGS = {"kill -9": (kill, "killed"), "an exception": (interrupt, "interrupted")}


def falsify_manifest_always_matches_files(subject: Any) -> None:
    old, export = _small(2), partial(subject.save_decoder, _small(4))
    for how, (act, expected) in ENDINGS.items():
        for moment in itertools.count(1):
            with scratch() as directory:
                subject.save_decoder(old, directory, {"of": "old"})
                ended = ended_before(moment, directory, partial(export, directory, {"of": "new"}), act)
                when = f"ended by {how} before operation {moment} on its files"
                _assert_described(subject, directory, when)
                if ended == "done":
                    said = json.loads((directory / "manifest.json").read_text())["of"]
                    assert said == "new", f"a finished export left the manifest of the {said} model"
                    break
                assert ended == expected, f"{when}, the export ended in another way: {ended}"


def _assert_described(subject: Any, directory: Path, when: str) -> None:
    digests = _digests(directory)
    if digests.pop("manifest.json", None):
        manifest = json.loads((directory / "manifest.json").read_text())
        assert manifest["sha256"] == digests, f"{when}, the manifest of the {manifest['of']} model is beside others"
    try:
        loaded = subject.load_decoder(directory)
    except ValueError:
        return
    width = loaded.config.width
    values = {float(x) for value in loaded.state_dict().values() for x in value.unique()}
    assert values == {float(width)}, f"{when}, a model of width {width} is loaded with the weights {sorted(values)}"


@given(
    values=st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
    seed=st.integers(0, 9),
    transposed=st.booleans(),
)
def falsify_model_is_read_back_bit_for_bit(
    subject: Any, device: str, values: torch.dtype, seed: int, transposed: bool
) -> None:
    module = _small(4).to(values)
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
        assert digest == written, f"the digest of the weights is {digest}, that of the file {written}"
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
            subject.save_decoder(_small(2), directory, {})
        before = file_digests(directory)
        export = partial(subject.save_decoder, _small(4), directory, {}, write_file=write)
        assert_refused(f"{kind} at {failing}", export, str(directory / failing), cause, kind=OutputError)
        left = file_digests(directory)
    odd = [each for each, content in left.items() if each == "manifest.json" or before.get(each) != content]
    assert not odd, f"with {kind} at {failing}, {odd} of the new model, or a manifest, is left"
