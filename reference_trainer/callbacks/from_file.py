"""Create callbacks from a TOML file with import paths and JSON arguments.

    [[callbacks]]
    use = "reference_trainer.callbacks.stopping:EarlyStopping"
    arguments = { metric = "eval/hard_loss", patience = 3 }

Every process of a run creates its callbacks from the same file. Only code that this file names is executed.

An argument may be a secret, so messages replace strings of 4 or more characters from the arguments by `...`, also where
they are escaped once. Names of arguments and of keys, numbers, shorter strings, and strings that a class changes or
cuts before it quotes them, are shown.
"""

from __future__ import annotations

import difflib
import inspect
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from reference_trainer.callbacks.base import Callback, as_callbacks
from reference_trainer.config.kinds import import_object
from reference_trainer.errors import SettingError, similar_path

LARGEST_FILE = 2**20
"""Largest size of a file in bytes. A limit is needed because a device such as /dev/zero has no end."""
_SHORTEST_SECRET = 4  # number of characters; shorter arguments, such as the mode "min", are shown in messages


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """The specification of one callback in a file.

    Attributes:
        where: The file and the number of the callback, for messages.
        use: The import path of the callback's class, MODULE:CLASS.
        arguments: The arguments of the class.
    """

    where: str
    use: str
    arguments: Mapping[str, object]

    def __repr__(self) -> str:
        """Return a text without the values of the arguments."""
        return f"Spec({self.where}: {self.use}, arguments: {', '.join(self.arguments) or 'none'})"


def load_callbacks(path: Path | None) -> tuple[Callback, ...]:
    """Return new instances of the callbacks that a file names, in the order of the file; none without a file.

    Raise `SettingError`, with the file and the number of the callback, if a callback cannot be read, imported or
    created.
    """
    return () if path is None else tuple(map(create_callback, read_specs(path)))


def read_specs(path: Path) -> tuple[Spec, ...]:
    """Return the specifications of a file, without importing the classes."""
    try:
        with path.open("rb") as file:
            text = file.read(LARGEST_FILE + 1)
        if len(text) > LARGEST_FILE:
            raise SettingError(f"{path} has more than {LARGEST_FILE} bytes; expected a TOML file of callbacks")
        tree = tomllib.loads(text.decode())
    except OSError as error:
        reason = f"{error.strerror}{similar_path(path)}"
        raise SettingError(f"cannot read {path}: {reason}; expected a TOML file of callbacks") from error
    except (ValueError, RecursionError) as error:  # invalid TOML, text that is not UTF-8, or too deep nesting
        raise SettingError(f"invalid TOML in {path}: {error}") from error
    _refuse_unknown(path, tree, ("callbacks",))
    entries = tree.get("callbacks", [])
    if not isinstance(entries, list):
        raise SettingError(f"{path}: callbacks is not a list; write each callback below [[callbacks]]")
    return tuple(_spec(f"{path}: callback {number}", entry) for number, entry in enumerate(entries, start=1))


def _spec(where: str, entry: object) -> Spec:
    """Return the specification of an entry. Raise `SettingError` for an invalid table, import path or argument."""
    if not isinstance(entry, dict):
        raise SettingError(f"{where} is not a table; write each callback below [[callbacks]]")
    _refuse_unknown(where, entry, ("use", "arguments"))
    use, arguments = entry.get("use"), entry.get("arguments", {})
    names = use.replace(":", ".").split(".") if isinstance(use, str) else []
    if not isinstance(use, str) or use.count(":") != 1 or not all(name.isidentifier() for name in names):
        raise SettingError(f"{where}: invalid use {use!r}; expected MODULE:CLASS")
    if not isinstance(arguments, dict):
        raise SettingError(f"{where}: arguments is not a table of names and values")
    for name, value in arguments.items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError):
            message = f"{where}: argument {name!r} is not a JSON value; give dates and NaN as text"
            raise SettingError(message) from None
    return Spec(where=where, use=use, arguments=arguments)


def _refuse_unknown(where: Path | str, table: Mapping[str, object], known: tuple[str, ...]) -> None:
    if unknown := sorted(table.keys() - known):
        near = difflib.get_close_matches(unknown[0], known)
        hint = f"did you mean {near[0]!r}?" if near else f"expected {' and '.join(known)}"
        raise SettingError(f"{where}: unknown key {unknown[0]!r} ({hint})")


def check_callbacks(path: Path | None) -> None:
    """Raise `SettingError` if the file, a class or its arguments are invalid. No callback is created."""
    if path is None:
        return
    for spec in read_specs(path):
        callback_class = _import_class(spec)
        try:
            inspect.signature(callback_class).bind(**spec.arguments)
        except TypeError as error:
            raise SettingError(f"{spec.where}: cannot create {spec.use}: {error}") from None
        except ValueError:  # the class has no signature, so its arguments cannot be checked
            continue


def _import_class(spec: Spec) -> type[Callback]:
    """Import the class of a callback. Raise `SettingError` if it is not a subclass of `Callback`."""
    imported = import_object(spec.where, spec.use)
    if not (isinstance(imported, type) and issubclass(imported, Callback)):
        raise SettingError(f"{spec.where}: {spec.use} is not a subclass of reference_trainer's Callback")
    return imported


def create_callback(spec: Spec) -> Callback:
    """Return a new callback. Raise `SettingError` if it cannot be imported or created, or has invalid hooks."""
    callback_class = _import_class(spec)
    try:
        # Pass a copy of the arguments, so that the callback cannot change `spec`.
        callback = callback_class(**json.loads(json.dumps(spec.arguments)))
    except Exception as error:
        reason = _hide_strings(f"{type(error).__name__}: {error}", spec.arguments)
        raise SettingError(f"{spec.where}: cannot create {spec.use}: {reason}") from None
    try:
        as_callbacks([callback])
    except TypeError as error:
        raise SettingError(f"{spec.where}: {_hide_strings(str(error), spec.arguments)}") from None
    return callback


def _hide_strings(text: str, value: object) -> str:
    """Replace the strings of a JSON value in `text` by `...`, because an error may quote a secret.

    Strings shorter than `_SHORTEST_SECRET`, numbers and the keys of objects are not replaced.
    """
    # The longest string first: it may contain another one.
    for secret in sorted(set(_strings(value)), key=len, reverse=True):
        # `repr`, also of a text that has a `repr`, and JSON write backslashes before a character, or an escape for it.
        spellings = ({c, ascii(c)[1:-1].lstrip("\\"), json.dumps(c)[1:-1].lstrip("\\")} for c in secret if c != "\\")
        pattern = "".join(rf"\\*(?:{'|'.join(map(re.escape, spelling))})" for spelling in spellings)
        text = re.sub(pattern, "...", text) if pattern else text
    return text


def _strings(value: object) -> Iterator[str]:
    """Yield the strings of a JSON value with at least `_SHORTEST_SECRET` characters, without the keys of objects."""
    if isinstance(value, str) and len(value) >= _SHORTEST_SECRET:
        yield value
    if isinstance(value, dict):
        value = list(value.values())
    for item in value if isinstance(value, list) else ():
        yield from _strings(item)
