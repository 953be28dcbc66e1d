"""What the claims of suites say of the faults that their contracts declare; `#` is a number, a list or a dtype."""

import re
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from pv.contract.load import load_file
from pv.contract.model import Edit
from pv.contract.suites import suites
from pv.instrument.swap import swap
from pv.source.patch import patch
from tests.suites.trying import trying_of

NUMBERS = r"\[[^a-z;]*\]|\(\d+: [^)]*\)|(?<![\^\w])-?\d[\d.]*(e[-+]?\d+)?\b|\bnan\b|(?<=torch\.)\w+"
MESSAGES = yaml.safe_load((Path(__file__).parent / "messages.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", MESSAGES)
def test_claim_says_what_is_wrong(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    contract, _ = load_file(suites()[name])
    assert contract is not None
    trying, messages = trying_of(name), {}
    original = import_module(contract.subject.module)
    for claim, mutant in ((entry, contract.mutant(id_)) for entry in contract.falsifiers for id_ in entry.kills):
        module, source, change = ModuleType(original.__name__), Path(str(original.__file__)).read_text(), mutant.change
        if isinstance(change, Edit):
            source = patch(source, change.function.attribute, change.find, change.replace, change.occurrence)
        monkeypatch.setitem(sys.modules, original.__name__, module)
        exec(compile(source, str(original.__file__), "exec"), vars(module))
        if not isinstance(change, Edit):
            swap(module, change.object.attribute, change.replacement.inside(import_module(change.replacement.module)))
        bench = trying.bench(contract.subject.inside(module))
        used = len(bench.used)
        with pytest.raises(AssertionError) as refuted:
            trying.tests[claim.id](bench=bench)
        assert len(bench.used) > used, f"{claim.id} counts no run"
        first = str(refuted.value).partition("\n")[0].replace("example,", "examples,")  # pytest adds lines
        messages[mutant.id] = re.sub(NUMBERS, "#", first)
    assert messages == MESSAGES[name]
