"""What equations share: `domains` and `constants` that they name as `$name`, and equations of other contracts."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pv.contract.model import Contract
from pv.contract.mutants import Name

REFERENCE = re.compile(r"\$([A-Za-z_]\w*)")
FOR_PEOPLE = "tolerance"
"""A key of an equation whose text is not in the language."""
Keys = Mapping[str, Any]


def executable(contract: Contract, above: tuple[str, ...] = ()) -> dict[str, Keys]:
    """Return the keys of the equations that can be evaluated, by name: its own, then those that it uses.

    Every known `$name` is replaced by its text. An unknown one stays, and so does an unknown or circular `use` apart;
    lint reports them. above: the ids of the contracts that use this one.
    """
    texts = shared_values(contract)
    found = {e.name: _replaced(e.executable, texts) for e in contract.equations if e.executable}
    for used in contract.use:
        for name, keys in brought(contract, used, above).items():
            found.setdefault(name, keys)
    return found


def brought(contract: Contract, used: Name, above: tuple[str, ...] = ()) -> dict[str, Keys]:
    """Return the equation that an entry of `use` names and those that it calls, by name; {} if there is none."""
    id_, name = split(used)
    if id_ not in contract.known or id_ in (contract.id, *above):
        return {}
    theirs = executable(contract.known[id_], (*above, contract.id))
    needed = [name] if name in theirs else []
    for each in needed:
        words = set(re.findall(r"\w+", str(dict(theirs[each]))))
        needed += [other for other in theirs if other in words and other not in needed]
    return {each: theirs[each] for each in needed}


def split(used: Name) -> tuple[str, str]:
    """Return the id of the contract and the name of the equation that an entry of `use` names."""
    id_, _, name = used.text.rpartition(".")
    return id_, name


def shared_values(contract: Contract) -> dict[str, str]:
    """Return the text of every `$name`: of constants, and of domains, which may name constants."""
    constants = {name: repr(value) for name, value in contract.constants.items()}
    domains = {name: _with(text, constants) for name, text in contract.domains.items()}
    return constants | domains


def unknown(contract: Contract) -> Iterator[tuple[str, str, str, tuple[int, int]]]:
    """Yield each unknown `$name` in an equation: the equation, the path of its key, the name, its line and column."""
    texts = shared_values(contract)
    for equation in contract.equations:
        for key, text in _texts(equation.executable):
            for reference in REFERENCE.finditer(text):
                if reference[1] not in texts:
                    before = text[: reference.start()]
                    place = before.count("\n") + 1, len(before.rpartition("\n")[2]) + 1
                    yield equation.name, key, reference[1], place


def circle(contract: Contract) -> tuple[str, ...]:
    """Return the ids along a circle of `use` through the contract, from it and back; () if there is none."""
    todo: list[tuple[str, ...]] = [(contract.id,)]
    while todo:
        path = todo.pop()
        last = contract.known.get(path[-1], contract)
        for id_ in dict.fromkeys(split(used)[0] for used in last.use):
            if id_ == contract.id:
                return (*path, id_)
            todo += [(*path, id_)] if id_ in contract.known and id_ not in path else []
    return ()


def _texts(keys: Keys) -> Iterator[tuple[str, str]]:
    """Yield the texts of an equation with their paths, such as `domain/s`."""
    for key, value in keys.items():
        if key == FOR_PEOPLE:
            continue
        parts: dict[str, Any] = {key: value}
        if isinstance(value, Mapping):
            parts = {f"{key}/{name}": item for name, item in value.items()}
        elif isinstance(value, list):
            parts = {f"{key}/{place}": item for place, item in enumerate(value)}
        yield from ((path, text) for path, text in parts.items() if isinstance(text, str))


def _replaced(keys: Keys, texts: Mapping[str, str]) -> Keys:
    return {key: value if key == FOR_PEOPLE else _value(key, value, texts) for key, value in keys.items()}


def _value(key: str, value: Any, texts: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        return {name: _value(key, item, texts) for name, item in value.items()}
    if isinstance(value, list):
        return [_value(key, item, texts) for item in value]
    if not isinstance(value, str):
        return value
    return _with(value, texts) if key == "domain" else _with(value, texts, as_operand=True)


def _with(text: str, texts: Mapping[str, str], *, as_operand: bool = False) -> str:
    """Return a text with its references replaced. An operand keeps the columns behind it, if it is short enough."""

    def one(found: re.Match[str]) -> str:
        new = texts.get(found[1], found[0])
        if as_operand and new.startswith("-"):
            new = f"({new})"
        return new.ljust(len(found[0])) if as_operand else new

    return REFERENCE.sub(one, text)
