"""Attacks on files of callbacks that are refused. The subject is `training.callbacks_file`."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.callbacks_file.falsify_made import HERE, write
from reference_trainer import DataError, SettingError, Settings, distill


def entry(use: str, arguments: str = "") -> str:
    return f'[[callbacks]]\nuse = "{use}"\n{arguments}'


FILES: dict[str, tuple[str, list[str]]] = {
    "no TOML": ("[[callbacks]\n", ["not TOML", "line 1"]),
    "a misspelt key": ("callback = []\n", ["unknown key 'callback'", "did you mean 'callbacks'?"]),
    "another key": ("colour = []\n", ["unknown key 'colour'", "expected callbacks"]),
    "no list": ("[callbacks]\n", ["not a list"]),
    "no tables": ("callbacks = [3]\n", ["callback 1", "not a table"]),
    "a misspelt argument": (entry(f"{HERE}:Mine", "argument = {}\n"), ["callback 1", "did you mean 'arguments'?"]),
    "an unknown key": (
        entry(f"{HERE}:Mine", "colour = {}\n"),
        ["callback 1: unknown key 'colour'", "use and arguments"],
    ),
    "no use": ("[[callbacks]]\narguments = {}\n", ["callback 1", "None", "MODULE:CLASS"]),
    "no class": (entry(HERE), [HERE, "MODULE:CLASS"]),
    "two colons": (entry(f"{HERE}:Mine:Mine"), ["MODULE:CLASS"]),
    "code": (entry("os:system('true')"), ["MODULE:CLASS"]),
    "a relative module": (entry(".mine:Mine"), ["MODULE:CLASS"]),
    "an unknown module": (entry("no_such_module:Mine"), ["no_such_module", "PYTHONPATH"]),
    "an unknown class": (entry(f"{HERE}:Mime"), ["no Mime", "Mine"]),
    "a function": (entry("os:getcwd"), ["os:getcwd", "subclass"]),
    "another class": (entry(f"{HERE}:Other"), ["Other", "subclass"]),
    "an instance": (entry(f"{HERE}:made"), ["made", "subclass"]),
    "a misspelt hook": (entry(f"{HERE}:Misspelt"), ["on_logs", "on_log"]),
    "an async hook": (entry(f"{HERE}:Asynchronous"), ["async"]),
    "no table of arguments": (entry(f"{HERE}:Mine", "arguments = [3]\n"), ["arguments is not a table"]),
    "a date": (entry(f"{HERE}:Mine", "arguments = {threshold = 2026-01-01}\n"), ["'threshold'", "JSON"]),
    "a nested date": (entry(f"{HERE}:Mine", "arguments = {names = [2026-01-01]}\n"), ["'names'", "JSON"]),
    "not a number": (entry(f"{HERE}:Mine", "arguments = {threshold = nan}\n"), ["'threshold'", "JSON"]),
    "a missing argument": (entry(f"{HERE}:Watching"), ["Watching", "TypeError", "token"]),
    "an unknown argument": (entry(f"{HERE}:Watching", 'arguments = {tokens = "a"}\n'), ["TypeError", "tokens"]),
    "a constructor that raises": (entry(f"{HERE}:Refusing"), ["Refusing", "ValueError", "cannot use"]),
    "a constructor that quotes a word": (entry(f"{HERE}:Refusing", 'arguments = {mode = "low"}\n'), ["'mode': 'low'"]),
}
"""Contents of files that are refused, and what the message says."""


def refusal(load: Callable[[], object]) -> str:
    """Return the message of the `SettingError` of a call; empty if it is accepted."""
    try:
        load()
    except SettingError as error:
        return str(error)
    return ""


@given(kind=st.sampled_from(sorted(FILES)), before=st.integers(0, 2))
def falsify_unusable_files_are_refused(subject: Any, kind: str, before: int) -> None:
    text, words = FILES[kind]
    before = before if text.startswith("[[callbacks]]\n") else 0
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "callbacks.toml")
        path.write_text(entry(f"{HERE}:Mine") * before + text)
        said = refusal(lambda: subject.load_callbacks(path))
        words = [str(path), *[each.replace("callback 1", f"callback {before + 1}") for each in words]]
    missing = [each for each in words if each not in said]
    assert said and not missing, f"{kind}: refused with {said!r}; expected a SettingError that names {missing}"


@given(kind=st.sampled_from(["missing", "a directory", "binary", "endless", "an import path", "code"]))
def falsify_what_is_no_file_is_refused(subject: Any, kind: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        there = Path(name, "there")
        there.write_bytes(b"\xff\xfe")
        odd = {"missing": Path(name, "none"), "a directory": Path(name), "binary": there, "endless": Path("/dev/zero")}
        odd |= {"an import path": Path(f"{HERE}:Mine"), "code": Path("__import__('os').abort()")}
        said = refusal(lambda: subject.load_callbacks(odd[kind]))
    assert str(odd[kind]) in said, f"{kind}: refused with {said!r}; expected a SettingError that names the path"


@given(more=st.integers(0, 1))
def falsify_large_files_are_refused(subject: Any, more: int) -> None:
    text = entry(f"{HERE}:Mine") + "\n"
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "callbacks.toml")
        path.write_text(text + "#" * (subject.LARGEST_FILE + more - len(text)))
        said = refusal(lambda: subject.load_callbacks(path))
        words = [str(path), str(subject.LARGEST_FILE)]
    missing = [each for each in words if each not in said]
    assert bool(missing) != bool(more), f"{more} bytes more than the limit: refused with {said!r}"


SECRET = "s3cr3t-t0ken"


@given(
    nested=st.booleans(), use=st.sampled_from(["Refusing", "Watching", "Misspelt", "Other"]), length=st.integers(4, 12)
)
def falsify_no_message_holds_an_argument(subject: Any, nested: bool, use: str, length: int) -> None:
    """A refusal names the arguments at most, whatever the constructor quotes; its chain of errors is hidden too.

    length: that of the argument; shorter texts are words, such as a mode.
    """
    secret = SECRET[:length]
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "callbacks.toml")
        write(path, [(f"{HERE}:{use}", {"key": {"inner": [secret]} if nested else secret})])
        try:
            subject.load_callbacks(path)
        except SettingError as error:
            shown = f"{error} {error.__cause__} {'' if error.__suppress_context__ else error.__context__}"
            assert secret not in shown, f"the refusal of {use} holds the argument: {shown}"
            return
    raise AssertionError(f"{use} is accepted with an argument that it does not have")


def falsify_refusal_comes_before_the_run(subject: Any) -> None:
    """A run whose file is refused has read no text, made no directory, and written no line."""
    del subject  # the pipeline's
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "callbacks.toml")
        write(path, [(f"{HERE}:Watching", {})])
        settings = Settings(callbacks=path, out=Path(name, "out"), data=Path(name, "missing"))
        try:
            said = refusal(lambda: distill(settings))
        except DataError as error:
            raise AssertionError(f"the text is read before the callbacks are refused: {error}") from error
        left = sorted(each.name for each in Path(name).iterdir())
    assert "Watching" in said and left == ["callbacks.toml"], f"refused with {said!r}, the run left {left}"
