"""Resolve shared parts of equations: each `$name` of a domain or constant, and equations of other contracts (`use`)."""

import re
from collections.abc import Iterator, Mapping

from pv.contract.model import Contract, Keys, Name

REFERENCE = re.compile(r"\$([A-Za-z_]\w*)")
NOT_IN_LANGUAGE = "tolerance"
"""The key of an equation whose text is not in the language of expressions."""


def executable_equations(contract: Contract, above: tuple[str, ...] = ()) -> dict[str, Keys]:
    """Return the equations that can be evaluated, by name: the contract's own, then equations of its `use`.

    Every `$name` is replaced by the text of its domain or constant. An unknown `$name` stays as it is, and an unknown
    or circular entry of `use` is ignored: lint reports both.

    Args:
        contract: The contract, linked with the other contracts of the project.
        above: The ids of the contracts that import this one by `use`, directly or not, the outermost first.
    """
    texts = shared_values(contract)
    # `executable` has the keys that can be evaluated; it is empty for an equation that is only for people.
    equations = {e.name: _replace_in_keys(e.executable, texts) for e in contract.equations if e.executable}
    for entry in contract.use:
        for name, keys in imported_equations(contract, entry, above).items():
            equations.setdefault(name, keys)
    return equations


def imported_equations(contract: Contract, used: Name, above: tuple[str, ...] = ()) -> dict[str, Keys]:
    """Return the equation of an entry of `use`, and the equations that it calls, by name.

    Return {} if the equation does not exist or the import is circular.
    """
    id_, name = split_entry(used)
    if id_ not in contract.known or id_ in (contract.id, *above):
        return {}
    equations = executable_equations(contract.known[id_], (*above, contract.id))
    # The transitive closure of calls; the list grows while it is iterated. An equation may call the equations whose
    # names are words of its text. If such a word is no call but, for example, a variable, an equation that is not
    # needed is imported, which has no effect.
    needed = [name] if name in equations else []
    for caller in needed:
        words = set(re.findall(r"\w+", str(dict(equations[caller]))))
        needed += [callee for callee in equations if callee in words and callee not in needed]
    return {name: equations[name] for name in needed}


def split_entry(used: Name) -> tuple[str, str]:
    """Return the id of the contract and the name of the equation in an entry of `use`."""
    id_, _, name = used.text.rpartition(".")
    return id_, name


def shared_values(contract: Contract) -> dict[str, str]:
    """Return the text of every `$name`: of the constants, and of the domains, which may refer to constants."""
    constants = {name: repr(value) for name, value in contract.constants.items()}
    domains = {name: _replace(text, constants) for name, text in contract.domains.items()}
    return constants | domains


def unknown_references(contract: Contract) -> Iterator[tuple[str, str, str, tuple[int, int]]]:
    """Yield (equation, path of the key, name, (line, column) in the text) for every unknown `$name` in an equation."""
    texts = shared_values(contract)
    for equation in contract.equations:
        for key, text in _texts(equation.executable):
            for reference in REFERENCE.finditer(text):
                if reference[1] not in texts:
                    before = text[: reference.start()]
                    position = before.count("\n") + 1, len(before.rpartition("\n")[2]) + 1
                    yield equation.name, key, reference[1], position


def find_cycle(contract: Contract) -> tuple[str, ...]:
    """Return the ids on a cycle of `use` that starts and ends at the contract; () if there is none."""
    # Depth-first search over paths of ids; a path never visits an id twice.
    todo: list[tuple[str, ...]] = [(contract.id,)]
    while todo:
        path = todo.pop()
        last = contract.known.get(path[-1], contract)
        for id_ in dict.fromkeys(split_entry(entry)[0] for entry in last.use):
            if id_ == contract.id:
                return (*path, id_)
            todo += [(*path, id_)] if id_ in contract.known and id_ not in path else []
    return ()


def _texts(keys: Keys) -> Iterator[tuple[str, str]]:
    """Yield the texts of an equation with their paths, such as `domain/s`."""
    for key, value in keys.items():
        if key == NOT_IN_LANGUAGE:
            continue
        parts: dict[str, object] = {key: value}
        if isinstance(value, Mapping):
            parts = {f"{key}/{name}": item for name, item in value.items()}
        elif isinstance(value, list):
            parts = {f"{key}/{index}": item for index, item in enumerate(value)}
        yield from ((path, text) for path, text in parts.items() if isinstance(text, str))


def _replace_in_keys(keys: Keys, texts: Mapping[str, str]) -> Keys:
    return {
        key: value if key == NOT_IN_LANGUAGE else _replace_in_value(key, value, texts) for key, value in keys.items()
    }


def _replace_in_value(key: str, value: object, texts: Mapping[str, str]) -> object:
    if isinstance(value, Mapping):
        return {name: _replace_in_value(key, item, texts) for name, item in value.items()}
    if isinstance(value, list):
        return [_replace_in_value(key, item, texts) for item in value]
    if not isinstance(value, str):
        return value
    return _replace(value, texts, as_operand=key != "domain")


def _replace(text: str, texts: Mapping[str, str], *, as_operand: bool = False) -> str:
    """Return a text with every `$name` replaced.

    Args:
        text: The text of a key.
        texts: The text of every domain and constant, by name.
        as_operand: Whether the text is an expression. A negative number is then written in brackets, and a replacement
            that is shorter than `$name` is padded, so that later errors on the line have the column of the file.
    """

    def replacement(reference: re.Match[str]) -> str:
        new = texts.get(reference[1], reference[0])
        if as_operand and new.startswith("-"):
            new = f"({new})"
        return new.ljust(len(reference[0])) if as_operand else new

    return REFERENCE.sub(replacement, text)
