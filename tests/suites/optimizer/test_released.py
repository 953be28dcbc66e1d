import torch

from pv.contract.load import load_file
from pv.contract.suites import suites
from pv.suites.optimizer import released


def test_every_declared_subject_is_pytorchs() -> None:
    suite, _ = load_file(suites()["optimizer"])
    assert suite is not None
    for each in suite.subjects:
        name = str(each.target.attribute)
        assert getattr(released, name) is getattr(torch.optim, name)
