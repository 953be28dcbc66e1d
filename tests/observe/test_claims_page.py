"""`docs/script-claims.md` has every claim about a training script as the contract states it."""

import re
from pathlib import Path

from pv.contract.load import load_file
from pv.contract.suites import suites

PAGE = Path(__file__).parents[2] / "docs/script-claims.md"


def test_page_lists_every_claim_with_its_usual_mistake() -> None:
    contract, findings = load_file(suites()["training-run"])
    assert contract is not None, findings
    expected = {claim.id: (claim.rule, claim.if_fails) for claim in contract.falsifiers}
    rows = re.findall(r"^\| `(TR-[A-Z]+-\d+)` \| (.*) \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert {name: (rule, mistake) for name, rule, mistake in rows} == expected
    assert len(rows) == len(expected)
