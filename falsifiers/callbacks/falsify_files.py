"""Attacks on files of callbacks: their callbacks, and refusals. The subject is `callbacks.from_file`."""

import json
from functools import partial
from pathlib import Path
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from falsifiers.support.assertions import assert_equal
from falsifiers.support.oracles import assert_refused
from falsifiers.support.runs import scratch
from reference_trainer import SettingError, Settings, distill

HERE = "falsifiers.callbacks.mine"
TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=6)
VALUES = st.recursive(
    st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)
ARGUMENTS = st.fixed_dictionaries(
    {}, optional={"threshold": st.floats(0, 1), "names": st.lists(TEXT, max_size=3), "other": VALUES, "more": VALUES}
)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml(name)} = {_toml(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, float):
        return repr(value) if "." in repr(value) or "e" in repr(value) else f"{value!r}.0"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def entry(use: str, arguments: str = "") -> str:
    return f'[[callbacks]]\nuse = "{HERE}:{use}"\n{arguments}'


def written(directory: Path, *entries: tuple[str, dict[str, Any]]) -> Path:
    """Write a file of callbacks, each with its class and arguments."""
    path = directory / "callbacks.toml"
    blocks = (entry(use, f"arguments = {_toml(arguments)}\n") for use, arguments in entries)
    path.write_text("\n".join(blocks), encoding="utf-8")
    return path


@given(entries=st.lists(ARGUMENTS, max_size=4))
@example(entries=[{"threshold": 0.5}])
def falsify_arguments_reach_the_constructor(subject: Any, entries: list[dict[str, Any]]) -> None:
    with scratch() as root:
        path = written(root, *(("Mine", arguments) for arguments in entries))
        loads = subject.load_callbacks(path), subject.load_callbacks(path)
    expected = [{"threshold": 0.1, "names": ["default"], **arguments} for arguments in entries]
    for callbacks in loads:
        states = [callback.state for callback in callbacks]
        assert_equal(f"states of the callbacks of {entries}", repr(states), repr(expected))
        for state in states:
            state["names"].append("changed")  # reaches the others if they share it


FILES: dict[str, tuple[str, list[str]]] = {
    "no TOML": ("[[callbacks]\n", ["invalid TOML", "line 1"]),
    "a misspelt key": ("callback = []\n", ["unknown key 'callback'", "did you mean 'callbacks'?"]),
    "no list": ("[callbacks]\n", ["not a list"]),
    "an unknown key": (entry("Mine", "colour = {}\n"), ["unknown key 'colour'", "use and arguments"]),
    "no use": ("[[callbacks]]\narguments = {}\n", ["None", "MODULE:CLASS"]),
    "no class": (f'[[callbacks]]\nuse = "{HERE}"\n', [HERE, "MODULE:CLASS"]),
    "an unknown module": ('[[callbacks]]\nuse = "no_such_module:Mine"\n', ["no_such_module", "PYTHONPATH"]),
    "a class of a notebook": (
        '[[callbacks]]\nuse = "__main__:Mine"',
        ["__main__:Mine", "write it to a file", "mine:Mine"],
    ),
    "an unknown class": (entry("Mime"), ["unknown name 'Mime'", "Mine"]),
    "another class": (entry("Other"), ["Other", "subclass"]),
    "a misspelt hook": (entry("Misspelt"), ["on_logs", "on_log"]),
    "no table of arguments": (entry("Mine", "arguments = [3]\n"), ["arguments is not a table"]),
    "a date": (entry("Mine", "arguments = {threshold = 2026-01-01}\n"), ["'threshold'", "JSON"]),
    "a missing argument": (entry("Watching"), ["Watching", "TypeError", "token"]),
    "an unknown argument": (entry("Watching", 'arguments = {tokens = "a"}\n'), ["TypeError", "tokens"]),
    "a constructor that raises": (entry("Refusing"), ["Refusing", "ValueError", "cannot use"]),
    "a constructor that quotes a word": (entry("Refusing", 'arguments = {mode = "low"}\n'), ["'mode': 'low'"]),
}
"""Contents of files that are refused, after a good callback if they begin with another, and words of the message."""


def falsify_unusable_files_are_refused(subject: Any) -> None:
    for kind, (text, words) in FILES.items():
        with scratch() as root:
            path = root / "callbacks.toml"
            is_second = text.startswith("[[callbacks]]\n")
            path.write_text(entry("Mine") * is_second + text)
            words = [str(path), *["callback 2"] * is_second, *words]
            assert_refused(kind, partial(subject.load_callbacks, path), *words, kind=SettingError)


def falsify_what_is_no_file_is_refused(subject: Any) -> None:
    with scratch() as root:
        for path in (root / "none", root, Path(f"{HERE}:Mine"), Path("__import__('os').abort()")):
            assert_refused(f"{path}", partial(subject.load_callbacks, path), str(path), kind=SettingError)
        path = root / "callbacks.toml"
        path.write_text(entry("Mine").ljust(2**20))
        assert_equal("callbacks of a file of 1 MiB", len(subject.load_callbacks(path)), 1)
        path.write_text(entry("Mine").ljust(2**20 + 1))
        assert_refused("a larger file", partial(subject.load_callbacks, path), str(path), "1048576", kind=SettingError)


@given(
    nested=st.booleans(),
    use=st.sampled_from(["Refusing", "Prioritized", "Watching", "Misspelt", "Other"]),
    begin=st.sampled_from(["", "abcd", "\\n", "\n", "é'\"", "\x7f\U0001f511"]),
    length=st.integers(4, 12),
)
@example(nested=True, use="Refusing", begin="abcd", length=12)
@example(nested=False, use="Refusing", begin="\n", length=12)
@example(nested=True, use="Prioritized", begin="\n", length=12)
def falsify_no_message_holds_an_argument(subject: Any, nested: bool, use: str, begin: str, length: int) -> None:
    """length: the length of the argument's end; shorter texts are words, such as a mode."""
    secret = "s3cr3t-t0ken"[:length]
    argument = begin + secret
    with scratch() as root:
        path = written(root, (use, {"key": {"begin": begin, "inner": [argument]} if nested else argument}))
        try:
            subject.load_callbacks(path)
        except SettingError as error:
            shown = f"{error} {error.__cause__} {'' if error.__suppress_context__ else error.__context__}"
            assert secret[-4:] not in shown, f"the refusal of {use} holds the end of the argument {secret!r}: {shown}"
        else:
            raise AssertionError(f"{use} is accepted with an argument that it does not have")


def falsify_refusal_comes_before_the_run(subject: Any) -> None:
    del subject  # the pipeline's
    with scratch() as root:
        settings = Settings(callbacks=written(root, ("Watching", {})), out=root / "out", data=root / "missing")
        assert_refused("a file of a wrong callback", partial(distill, settings), "Watching", kind=SettingError)
        assert_equal("files after the refusal", [path.name for path in root.iterdir()], ["callbacks.toml"])
