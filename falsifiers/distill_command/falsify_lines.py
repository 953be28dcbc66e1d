"""Attacks on the settings that the command line passes on and on its output. The subject is `reference_trainer.cli`."""

from __future__ import annotations

import importlib
import itertools
import math
import re
import tempfile
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import reference_trainer
from falsifiers.distill_command.cases import Failing, command, distilling, raising, result

WHOLE = re.compile(r"([0-9]+) steps in ([0-9]+\.[0-9])s \(([0-9]+\.[0-9]{2}) step/s, ([0-9,]+) tokens/s\): (.*)")
LOSSES = st.none() | st.floats(0, 1e6) | st.just(math.inf)


SEEN = ("smoke", "force", "width", "layers", "seed", "epochs", "length", "out")


def falsify_settings_of_all_origins_are_merged(subject: Any) -> None:
    """Flags, variables and a file are merged into the settings of one run, whose lines are printed."""
    runs = list[Any]()

    def run(settings: Any, *, lines: Any) -> Any:
        runs.append(settings)
        lines.write("a line of the run")
        return result(go=True)

    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "settings.toml")
        file.write_text("width = 32\nlayers = 3\nlength = 8\n", encoding="utf-8")
        flags = ["--smoke", "5", "--config", str(file), "--force", "--out", "A/b C", "--length", "9"]
        variables = {"SEED": "7", "LAYERS": "2", "LENGTH": "10"}
        ended = distilling(subject, run, *flags, **{f"REFERENCE_TRAINER_{k}": v for k, v in variables.items()})
    assert len(runs) == 1, f"{len(runs)} runs; expected one: {ended}"
    seen = {name: getattr(runs[0], name) for name in SEEN}
    expected = dict(zip(SEEN, (5, True, 32, 2, 7, 3, 9, Path("A/b C")), strict=True))
    assert seen == expected, f"the run has the settings {seen}; expected {expected}"
    assert ended.said == "a line of the run\n", f"the run wrote one line, and standard output is {ended.said!r}"


def falsify_empty_flags_are_refused(subject: Any) -> None:
    """`--lr "$LR"` with an unset LR is refused by its name; neither a variable nor the default replaces it."""
    flags = [each for each in subject.main.commands["distill"].params if each.metavar]
    assert len(flags) > 20, f"distill has {len(flags)} flags with a value"
    for flag in (each.opts[0] for each in flags):
        ended = distilling(subject, raising(AssertionError("it runs")), flag, "", REFERENCE_TRAINER_LR="0.1")
        case = f"{flag} '': exit code {ended.code}, {ended.complaints!r}"
        assert ended.code == 2 and ended.complaints.startswith(f"error: invalid value '' for {flag}: expected "), case


@given(number=st.sampled_from([5, 28, 32]), closed=st.booleans())
def falsify_run_succeeds_without_standard_output(subject: Any, number: int, closed: bool) -> None:
    """A run succeeds although standard output is lost; standard error reports the loss once."""
    lost = Failing(OSError(number, "lost"))
    ended = distilling(subject, lambda settings, *, lines: result(), out=lost, closed=closed)
    assert ended.code == 0, f"a run without standard output ends with {ended}; expected 0"
    lines = ended.complaints.splitlines()
    assert len(lines) == 1 and lines[0].startswith("standard output failed ("), f"standard error has {lines}"


def _told(subject: Any, done: Any) -> list[str]:
    """Return the lines that are printed after a run with this result."""
    ended = distilling(subject, lambda settings, *, lines: done)
    assert ended.code == 0 and ended.complaints == "", f"after {done}: exit code {ended.code}, {ended.complaints!r}"
    return ended.said.splitlines()


@given(
    first=LOSSES,
    last=LOSSES,
    steps=st.integers(0, 10**6),
    elapsed_s=st.floats(0, 1e6),
    tokens=st.integers(0, 10**12),
    stopped=st.booleans(),
)
def falsify_result_line_reports_the_run(
    subject: Any, first: float | None, last: float | None, steps: int, elapsed_s: float, tokens: int, stopped: bool
) -> None:
    """Steps, time, steps and tokens per second, losses if a token was scored; a run of 0 s counts as 1 ns."""
    ran = {"steps_completed": steps, "elapsed_s": elapsed_s, "steps_per_s": steps / 7, "tokens": tokens}
    done = result(train={**ran, "initial_loss": first, "final_loss": first and last, "stopped": stopped})
    if first is not None:
        done.train.final_loss = last = last if last is not None else first
    said = _told(subject, done)
    found = WHOLE.fullmatch(said[0])
    assert found, f"{said[0]!r} isn't of the form that is documented"
    per_s = Fraction(tokens) / Fraction(max(elapsed_s, 1e-9))
    assert int(found[1]) == steps and found[2] == f"{elapsed_s:.1f}" and found[3] == f"{steps / 7:.2f}", said[0]
    told = int(found[4].replace(",", ""))
    assert abs(told - per_s) <= Fraction(1, 2) + per_s / 10**12, f"{tokens} tokens in {elapsed_s} s: {said[0]!r}"
    losses = "no token was scored" if first is None else f"distillation loss {first:.4f} to {last:.4f}"
    ended = losses + (", stopped by a callback" if stopped else "")
    assert found[5] == ended, f"the line ends in {found[5]!r}; expected {ended!r}"


@given(
    held=st.dictionaries(
        st.sampled_from(["cross_entropy", "kl", "other"]), st.tuples(st.floats(0, 1e9), st.integers(1, 10**9))
    )
)
def falsify_held_out_metrics_are_per_byte(subject: Any, held: dict[str, tuple[float, int]]) -> None:
    """One line per metric with its mean over the bytes, and the output directory as the last line."""
    metrics = {name: SimpleNamespace(sum=total, count=count) for name, (total, count) in held.items()}
    done = result(held_back=metrics, output=Path("a/place"))
    said = _told(subject, done)
    lines = [
        f"held-back {name}: {total / count:.4f} nats per byte over {count} bytes"
        for name, (total, count) in held.items()
    ]
    assert said[1:] == [*lines, "wrote a/place"], f"the last lines are {said[1:]}; expected {lines} and where it lies"


def falsify_help_and_version_are_printed(subject: Any) -> None:
    """`--version` prints program and version, `-h` and `--help` print the usage; unknown commands are refused."""
    version = command(subject, "--version")
    expected = f"reference-trainer, version {reference_trainer.__version__}\n"
    assert (version.code, version.said) == (0, expected), f"--version gives {version}; expected {expected!r}"
    for name, flag in itertools.product(("", "distill", "gradcheck", "schema"), ("-h", "--help")):
        ended = command(subject, *([name] if name else []), flag)
        usage = f"Usage: reference-trainer {name} ".replace("  ", " ")
        assert ended.code == 0 and ended.said.startswith(usage), f"{name} {flag} gives {ended}; expected {usage!r}"
    _assert_settings_in(" ".join(command(subject, "distill", "--help").said.split()))
    for name in ("distil", "", "schema x"):
        ended = command(subject, *name.split())
        assert ended.code == 2 and "Usage: reference-trainer" in ended.complaints, f"{name!r} gives {ended}"


def _assert_settings_in(shown: str) -> None:
    """Each setting has its flag, help and default, in the order of declaration."""
    places = []
    declared = importlib.import_module("reference_trainer.config.settings").Settings.model_fields
    for name, field in declared.items():
        default = "" if field.default in (None, False) else f" [default: {field.default}]"
        metavar = importlib.import_module("reference_trainer.config.kinds").kind_of(field).metavar
        words = (f" --{name.replace('_', '-')} {metavar}".rstrip(), field.description + default)
        assert all(" ".join(part.split()) in shown for part in words), f"distill --help lacks {words}: {shown}"
        places.append(shown.index(words[0]))
    assert places == sorted(places), f"distill --help has the settings in another order: {shown}"


def falsify_schemas_are_printed_unchanged(subject: Any) -> None:
    """Byte for byte what the functions `schema` return for lines of a trace and for settings, and nothing else."""
    modules = {"trace": "reference_trainer.training.trace", "settings": "reference_trainer.config.settings"}
    for arguments in ([], ["trace"], ["settings"]):
        ended = command(subject, "schema", *arguments)
        text = importlib.import_module(modules[arguments[0] if arguments else "trace"]).schema()
        assert (ended.code, ended.said, ended.complaints) == (0, text, ""), f"{arguments}: {ended}; expected {text!r}"
