"""Codes of loading and evidence are unique, and say whether a contract still runs."""

from pv.contract.codes import EVIDENCE, LOADING, Code, Stops


def test_codes_are_unique_and_sorted() -> None:
    names = [code.name for code in LOADING]
    assert names == sorted({*names})
    assert EVIDENCE.name not in names


def test_refusals_stop_a_contract_and_notices_do_not() -> None:
    assert {code.stops for code in LOADING if code.name < "PV1"} == {Stops.CONTRACT}
    assert {code.stops for code in (*LOADING, EVIDENCE) if code.name > "PV1"} == {Stops.NOTHING}
    assert Code("PV999", "a meaning").stops is Stops.CONTRACT
