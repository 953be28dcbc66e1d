"""Plants a mutant in modules that are imported already, where that is the same as importing them mutated.

The import hook mutates a module before any of its code runs. Afterwards it is too late for whatever has used the old
code: a decorator that compiled it, a call whose result was kept, a module that imported the replaced function. So a
mutant is planted here only if nothing can have seen the code that it changes. `plant` raises `NotPlantable` in every
other case, and in every case of doubt: the caller then imports the modules anew.
"""

import inspect
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

from pv.instrument import coverage
from pv.instrument.import_hook import ImportHook, Loader, Plan

EQUAL = (
    *("co_code", "co_names", "co_varnames", "co_freevars", "co_cellvars", "co_flags", "co_stacksize", "co_name"),
    *("co_qualname", "co_firstlineno", "co_linetable", "co_exceptiontable", "co_argcount", "co_posonlyargcount"),
    "co_kwonlyargcount",
)
"""The attributes that are equal if two code objects are, besides their constants."""
SEEN_FROM_OUTSIDE = ("co_freevars", "co_flags", "co_name", "co_qualname", "co_argcount", "co_posonlyargcount")
"""The attributes of a function's code that decorators, callers and closures depend on."""


class NotPlantable(BaseException):
    """A task that needs its modules to be imported anew; not an Exception, so that no handler of a subject takes it."""


def plant(hook: ImportHook, read: set[str]) -> None:
    """Plant the mutant of a hook's plan if its module is imported; otherwise the hook does it at the import.

    Args:
        hook: The hook under which the modules were imported without a mutant.
        read: The functions whose `__code__` was read meanwhile, as `module:name`, and the files whose text was read.

    Raises:
        NotPlantable: The mutant can only be planted at import.
        BrokenMutant: The mutant cannot be applied at all.
    """
    plan = hook.plan
    module = sys.modules.get(plan.module)
    if module is None:
        return
    if plan.module not in hook.codes:
        raise NotPlantable(f"{plan.module} was not imported by the hook")
    if plan.swap_with:
        _swap(hook, module, read)
    else:
        _replace_code(hook, module, read)


def check_shared(hook: ImportHook, plan: Plan, packages: frozenset[str]) -> None:
    """Raise NotPlantable unless the imported modules would be the same under another plan, but for its mutant.

    Args:
        hook: The hook under which they were imported.
        plan: The plan of a later task.
        packages: The top-level packages of the modules that were imported.
    """
    different = sorted(name for name in hook.loaded if hook.plan.covers(name) != plan.covers(name))
    different += sorted(({*hook.plan.packages} ^ {*plan.packages}) & packages)
    if different or hook.plan.statements != plan.statements:
        raise NotPlantable(f"modules were imported for another task: {different}")


def _replace_code(hook: ImportHook, module: ModuleType, read: set[str]) -> None:
    """Give the function that an edit changes its new code."""
    loader = module.__spec__.loader if module.__spec__ is not None else None
    if not isinstance(loader, Loader) or loader.path in read:
        raise NotPlantable(f"{module.__name__} was not loaded by the hook, or its text was read")
    mutated = loader.mutated_code(module.__name__, loader.get_data(loader.path))
    names, mutant = _changed_function(hook.codes[module.__name__], mutated)
    name = f"{module.__name__}:{'.'.join(names)}"
    # Functions record that they are entered: one that is not instrumented may have run.
    if "__pv_seen__" not in mutant.co_names or _has_run(name) or name in read:
        raise NotPlantable(f"{name} was called or read at import")
    function = _function(module, names)
    if not _is_same_outside(function.__code__, mutant):
        raise NotPlantable(f"{name} has other parameters, variables of closures, or another docstring")
    _check_code(function, hook.codes[module.__name__], names)
    function.__code__ = mutant


def _has_run(name: str) -> bool:
    return name in coverage.seen or name in coverage.ran or name in coverage.at_import


def _changed_function(old: CodeType, new: CodeType) -> tuple[list[str], CodeType]:
    """Return the names that lead to the only outermost function with another code, and this code."""
    changed = list(_changed_functions(old, new, []))
    if len(changed) != 1:
        raise NotPlantable(f"the mutant changes {len(changed)} functions")
    return changed[0]


def _changed_functions(old: CodeType, new: CodeType, path: list[str]) -> Iterator[tuple[list[str], CodeType]]:
    """Yield the outermost functions that differ. Raise NotPlantable for code that runs at import: modules, classes."""
    if not _is_equal_itself(old, new):
        raise NotPlantable(f"the mutant changes code that runs at import: {'.'.join(path)}")
    for before, after in zip(_codes(old), _codes(new), strict=True):
        names = [*path, before.co_name]
        if not before.co_flags & inspect.CO_OPTIMIZED:  # the body of a class
            yield from _changed_functions(before, after, names)
        elif not _is_equal(before, after):
            yield names, after


def _codes(code: CodeType) -> list[CodeType]:
    return [constant for constant in code.co_consts if isinstance(constant, CodeType)]


def _is_equal_itself(old: CodeType, new: CodeType) -> bool:
    """Return whether two code objects are equal but for the functions and classes that they define."""
    return all(getattr(old, name) == getattr(new, name) for name in EQUAL) and _key(old.co_consts) == _key(
        new.co_consts
    )


def _is_equal(old: CodeType, new: CodeType) -> bool:
    return _is_equal_itself(old, new) and all(map(_is_equal, _codes(old), _codes(new)))


def _key(constant: object) -> object:
    """Return what is equal for equal constants: 1, 1.0 and True differ, 0.0 and -0.0 too; nested code is left out."""
    if isinstance(constant, tuple | frozenset):
        parts = [_key(part) for part in constant]
        return type(constant), parts if isinstance(constant, tuple) else sorted(map(repr, parts))
    return (CodeType,) if isinstance(constant, CodeType) else (type(constant), repr(constant))


def _is_same_outside(old: CodeType, new: CodeType) -> bool:
    """Return whether a function looks the same with new code: its parameters, closure and docstring."""
    parameters = old.co_argcount + old.co_kwonlyargcount + bool(old.co_flags & inspect.CO_VARARGS)
    parameters += bool(old.co_flags & inspect.CO_VARKEYWORDS)
    return (
        all(getattr(old, name) == getattr(new, name) for name in SEEN_FROM_OUTSIDE)
        and old.co_kwonlyargcount == new.co_kwonlyargcount
        and old.co_varnames[:parameters] == new.co_varnames[:parameters]
        and _key(old.co_consts[:1]) == _key(new.co_consts[:1])  # the docstring is the first constant
    )


def _function(module: ModuleType, names: list[str]) -> FunctionType:
    """Return the function of a dotted name; it may be wrapped by decorators that keep it."""
    _, holder = _holder(module, names)
    found = _unwrapped(vars(holder).get(names[-1]), names[-1])
    if found is None or found.__module__ != module.__name__ or found.__qualname__ != ".".join(names):
        raise NotPlantable(f"{module.__name__} has no function {'.'.join(names)} any more")
    return found


def _holder(module: ModuleType, names: list[str]) -> tuple[str, ModuleType | type]:
    """Return the last of the names, and the module or class in whose namespace it is."""
    holder: Any = module
    for name in names[:-1]:
        holder = vars(holder).get(name)
        if not isinstance(holder, type) or holder.__module__ != module.__name__:
            raise NotPlantable(f"{name} is not a class of {module.__name__}")
    return names[-1], holder


def _unwrapped(value: Any, name: str) -> FunctionType | None:
    """Return the function in a property, a static or class method, or a decorator that keeps `__wrapped__`."""
    for _ in range(8):
        if isinstance(value, property):
            value = next((part for part in (value.fget, value.fset, value.fdel) if part is not None), None)
        elif isinstance(value, staticmethod | classmethod):
            value = value.__func__
        elif isinstance(value, FunctionType) and value.__code__.co_name == name:
            return value
        else:
            value = vars(value).get("__wrapped__") if hasattr(value, "__dict__") else None
    return None


def _check_code(function: FunctionType, module_code: CodeType, names: list[str]) -> None:
    """Raise NotPlantable unless the code of a function is that of the module, and nothing else refers to it.

    A frame, a copy of the function or a compiler may hold the code. A new function, whose references are known, shows
    how many there are at least.
    """
    code: CodeType | None = module_code
    for name in names:
        code = (
            next((part for part in _codes(code) if part.co_name == name and part is not None), None) if code else None
        )
    if code is not function.__code__:
        raise NotPlantable(f"the code of {function.__qualname__} is not that of its module")
    del code
    namespace: dict[str, Any] = {}
    definition = compile("def control(): pass", "<control>", "exec")
    exec(definition, namespace)
    # `definition` holds the code of the control as the code of the module holds that of the function.
    if sys.getrefcount(function.__code__) != sys.getrefcount(namespace["control"].__code__):
        raise NotPlantable(f"something else refers to the code of {function.__qualname__}")


def _swap(hook: ImportHook, module: ModuleType, read: set[str]) -> None:
    """Swap a function, also where other modules have bound it to a name by `from module import function`."""
    dotted = hook.plan.name
    name, holder = _holder(module, dotted.split("."))
    if name not in vars(holder):
        raise NotPlantable(f"{dotted} is not defined in {module.__name__}")
    function = _unwrapped(vars(holder)[name], name)
    # Functions record that they are entered: one that is not instrumented may have run.
    if function is None or "__pv_seen__" not in function.__code__.co_names:
        raise NotPlantable(f"{dotted} is not a function that records its calls")
    full_name = f"{module.__name__}:{dotted}"
    if getattr(vars(holder)[name], "__isabstractmethod__", False) or _has_run(full_name) or full_name in read:
        raise NotPlantable(f"{full_name} is abstract, or was called or read at import")
    del function
    bindings = _bindings(hook, vars(holder)[name], (holder, name))
    # Every reference must be one of these names: a new function, held by as many, shows how many references that makes.
    control = dict.fromkeys(range(1 + len(bindings)), _new_function())
    if sys.getrefcount(vars(holder)[name]) != sys.getrefcount(control[0]):
        raise NotPlantable(f"something else refers to {full_name}")
    hook.swap(module)
    # At import, the module of the replacement and what it imports are loaded before the swap: they keep the original.
    original = _imported(hook, hook.plan.swap_with.partition(":")[0])
    for other, bound in bindings:
        if other.__name__ in original:
            raise NotPlantable(f"{other.__name__} keeps the original of {full_name}")
        setattr(other, bound, vars(holder)[name])


def _imported(hook: ImportHook, name: str) -> set[str]:
    """Return a module with all modules that it imports, directly or not, as far as the hook has loaded them."""
    imported, todo = set[str](), [name]
    while todo:
        module = todo.pop()
        if module in imported:
            continue
        imported.add(module)
        # The names of imported modules are among the names of the code, also those of `from package import module`.
        names = set(_names(hook.codes[module])) if module in hook.codes else set()
        packages = {*names, *(module.rsplit(".", level)[0] for level in range(module.count(".") + 1))}
        candidates = names | {f"{package}.{name}" for package in packages for name in names}
        todo += [candidate for candidate in candidates if candidate in hook.codes]
    return imported


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in _codes(code):
        yield from _names(inner)


def _bindings(hook: ImportHook, value: object, place: tuple[ModuleType | type, str]) -> list[tuple[ModuleType, str]]:
    """Return the modules that have bound an object to a name, with this name, besides the place of its definition.

    Raises:
        NotPlantable: A module has bound it before the module of its definition had run, when it is never mutated.
    """
    bindings = []
    for other in hook.codes:
        loaded = sys.modules.get(other)
        if loaded is None:
            continue
        for name, bound in vars(loaded).items():
            if bound is value and (loaded, name) != place:
                if other == hook.plan.module or hook.plan.module in hook.importers.get(other, ()):
                    raise NotPlantable(f"{other} has bound {name} before {hook.plan.module} had run")
                bindings.append((loaded, name))
    return bindings


def _new_function() -> FunctionType:
    return FunctionType(compile("", "<control>", "exec"), {})
