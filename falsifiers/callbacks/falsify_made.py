"""Attacks on files of callbacks: what they make, and what is refused. The subject is `callbacks.from_file`."""

import json
from functools import partial
from pathlib import Path
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from falsifiers.support.oracles import assert_refused
from falsifiers.support.scratch import scratch
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


def in_toml(value: Any) -> str:
    """Return a value as TOML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{in_toml(name)} = {in_toml(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(in_toml, value)) + "]"
    if isinstance(value, float):
        return repr(value) if "." in repr(value) or "e" in repr(value) else f"{value!r}.0"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def write(path: Path, entries: list[tuple[str, dict[str, Any]]]) -> None:
    """Write a file of callbacks, each with its use and arguments."""
    blocks = (f"[[callbacks]]\nuse = {json.dumps(use)}\narguments = {in_toml(given)}\n" for use, given in entries)
    path.write_text("\n".join(blocks), encoding="utf-8")


@given(entries=st.lists(ARGUMENTS, max_size=4))
@example(entries=[{"threshold": 0.5}])
def falsify_arguments_reach_the_constructor(subject: Any, entries: list[dict[str, Any]]) -> None:
    with scratch() as root:
        path = root / "callbacks.toml"
        write(path, [(f"{HERE}:Mine", each) for each in entries])
        first, second = subject.load_callbacks(path), subject.load_callbacks(path)
    expected = [{"threshold": 0.1, "names": ["default"], **each} for each in entries]
    for made in (first, second):
        got = [each.state for each in made]
        assert repr(got) == repr(expected), f"{entries} make callbacks with the state {got}; expected {expected}"
        for each in made:
            each.state["names"].append("changed")  # reaches the others if they share it


def entry(use: str, arguments: str = "") -> str:
    return f'[[callbacks]]\nuse = "{use}"\n{arguments}'


FILES: dict[str, tuple[str, list[str]]] = {
    "no TOML": ("[[callbacks]\n", ["invalid TOML", "line 1"]),
    "a misspelt key": ("callback = []\n", ["unknown key 'callback'", "did you mean 'callbacks'?"]),
    "no list": ("[callbacks]\n", ["not a list"]),
    "an unknown key": (
        entry(f"{HERE}:Mine", "colour = {}\n"),
        ["callback 1: unknown key 'colour'", "use and arguments"],
    ),
    "no use": ("[[callbacks]]\narguments = {}\n", ["callback 1", "None", "MODULE:CLASS"]),
    "no class": (entry(HERE), [HERE, "MODULE:CLASS"]),
    "an unknown module": (entry("no_such_module:Mine"), ["no_such_module", "PYTHONPATH"]),
    "an unknown class": (entry(f"{HERE}:Mime"), ["unknown name 'Mime'", "Mine"]),
    "another class": (entry(f"{HERE}:Other"), ["Other", "subclass"]),
    "a misspelt hook": (entry(f"{HERE}:Misspelt"), ["on_logs", "on_log"]),
    "no table of arguments": (entry(f"{HERE}:Mine", "arguments = [3]\n"), ["arguments is not a table"]),
    "a date": (entry(f"{HERE}:Mine", "arguments = {threshold = 2026-01-01}\n"), ["'threshold'", "JSON"]),
    "a missing argument": (entry(f"{HERE}:Watching"), ["Watching", "TypeError", "token"]),
    "an unknown argument": (entry(f"{HERE}:Watching", 'arguments = {tokens = "a"}\n'), ["TypeError", "tokens"]),
    "a constructor that raises": (entry(f"{HERE}:Refusing"), ["Refusing", "ValueError", "cannot use"]),
    "a constructor that quotes a word": (entry(f"{HERE}:Refusing", 'arguments = {mode = "low"}\n'), ["'mode': 'low'"]),
}
"""Contents of files that are refused, and what the message says."""


def falsify_unusable_files_are_refused(subject: Any) -> None:
    for kind, (text, words) in FILES.items():
        before = int(text.startswith("[[callbacks]]\n"))
        words = [each.replace("callback 1", f"callback {before + 1}") for each in words]
        with scratch() as root:
            path = root / "callbacks.toml"
            path.write_text(entry(f"{HERE}:Mine") * before + text)
            assert_refused(kind, partial(subject.load_callbacks, path), str(path), *words, kind=SettingError)


def falsify_what_is_no_file_is_refused(subject: Any) -> None:
    with scratch() as root:
        odd = [root / "none", root, Path(f"{HERE}:Mine"), Path("__import__('os').abort()")]
        for path in odd:
            assert_refused(f"{path}", partial(subject.load_callbacks, path), str(path), kind=SettingError)


SECRET = "s3cr3t-t0ken"


@given(
    nested=st.booleans(), use=st.sampled_from(["Refusing", "Watching", "Misspelt", "Other"]), length=st.integers(4, 12)
)
def falsify_no_message_holds_an_argument(subject: Any, nested: bool, use: str, length: int) -> None:
    """length: that of the argument; shorter texts are words, such as a mode."""
    secret = SECRET[:length]
    with scratch() as root:
        path = root / "callbacks.toml"
        write(path, [(f"{HERE}:{use}", {"key": {"inner": [secret]} if nested else secret})])
        try:
            subject.load_callbacks(path)
        except SettingError as error:
            shown = f"{error} {error.__cause__} {'' if error.__suppress_context__ else error.__context__}"
            assert secret not in shown, f"the refusal of {use} holds the argument: {shown}"
            return
    raise AssertionError(f"{use} is accepted with an argument that it does not have")


def falsify_refusal_comes_before_the_run(subject: Any) -> None:
    del subject  # the pipeline's
    with scratch() as root:
        path = root / "callbacks.toml"
        write(path, [(f"{HERE}:Watching", {})])
        settings = Settings(callbacks=path, out=root / "out", data=root / "missing")
        assert_refused("a file of a wrong callback", partial(distill, settings), "Watching", kind=SettingError)
        left = sorted(each.name for each in root.iterdir())
    assert left == ["callbacks.toml"], f"the refused run left {left}"
