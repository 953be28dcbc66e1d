"""Arguments are compared with copies of what they were."""

import torch

from pv.engines.unchanged import Arguments, same


def test_arrays_are_compared_with_their_dtype_and_nan() -> None:
    nan = torch.tensor([1.0, torch.nan])
    assert same(nan, nan.clone())
    assert not same(nan, nan.double())
    assert not same(nan, torch.tensor([1.0, 2.0]))
    assert not same(nan, nan[:1])


def test_containers_are_compared_by_type_length_keys_and_items() -> None:
    nan = float("nan")
    assert same([1, (2.0, {"a": nan})], [1, (2.0, {"a": nan})])
    assert not same([1], (1,))
    assert not same([1], [1, 1])
    assert not same({"a": 1}, {"b": 1})
    assert not same({"a": [1]}, {"a": [2]})
    assert not same([1], [True])


def test_changed_arguments_are_named_and_may_hold_themselves() -> None:
    given, kept, circular = Arguments(), [torch.ones(1)], [1]
    written = torch.ones(2, requires_grad=True) * 2
    for text, value in (("kept", kept), ("circular", circular), ("written", written), ("n", 3)):
        given.add(text, value)
    assert list(given.changed()) == []
    circular[0] = circular
    written.mul_(2)
    assert list(given.changed()) == ["circular", "written"]
