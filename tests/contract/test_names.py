"""Names of code: `path/to/file.py::name` and `module:attribute`."""

import pytest

from pv.contract import names
from pv.contract.names import Binding, Target


@pytest.mark.parametrize("text", ["package.module", "package.module:name", "module:Class.method"])
def test_target_is_printed_as_it_was_written(text: str) -> None:
    assert str(Target.parse(text)) == text


def test_binding_is_printed_as_it_was_written() -> None:
    assert str(Binding("falsifiers/f.py", "falsify_f")) == "falsifiers/f.py::falsify_f"


def test_target_is_found_in_its_module() -> None:
    assert Target.parse("pv.contract.names").inside(names) is names
    assert Target.parse("pv.contract.names:Target.parse").inside(names) == Target.parse
    with pytest.raises(AttributeError):
        Target.parse("pv.contract.names:Missing").inside(names)
