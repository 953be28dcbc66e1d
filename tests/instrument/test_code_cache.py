"""Workers share compiled code, and none gets the code of another source, module or instrumentation."""

from pathlib import Path
from types import CodeType

import pytest

from pv.instrument.code_cache import load_or_compile
from pv.instrument.import_hook import ImportHook, Loader, Plan

SOURCE = b"value = 1\n"


def compiled() -> CodeType:
    return compile(SOURCE, "subject.py", "exec")


@pytest.mark.parametrize(("key", "source"), [(("other",), SOURCE), (("subject",), b"value = 2\n")])
def test_another_key_or_source_is_compiled(tmp_path: Path, key: tuple[str], source: bytes) -> None:
    load_or_compile(str(tmp_path), ("subject",), SOURCE, compiled)
    with pytest.raises(pytest.fail.Exception, match="compiled again"):
        load_or_compile(str(tmp_path), key, source, lambda: pytest.fail("compiled again"))


def test_damaged_file_is_compiled_again(tmp_path: Path) -> None:
    code = load_or_compile(str(tmp_path), ("subject",), SOURCE, compiled)
    (file,) = tmp_path.iterdir()
    file.write_bytes(b"")
    assert load_or_compile(str(tmp_path), ("subject",), SOURCE, compiled) == code


def test_mutant_is_neither_kept_nor_taken_from_the_cache(tmp_path: Path) -> None:
    module, cache = tmp_path / "subject.py", str(tmp_path / "code")
    module.write_text("def value():\n    return 1\n")
    edit = Plan(cache=cache, module="subject", name="value", find="return 1", replace="return 2")
    _, code = (
        Loader(ImportHook(plan), "subject", str(module)).get_code("subject") for plan in (Plan(cache=cache), edit)
    )
    namespace: dict[str, object] = {}
    exec(code, namespace)
    assert namespace["value"]() == 2
    assert len(list(Path(cache).iterdir())) == 1
