"""The subject that a request names."""

from dataclasses import replace

import pytest

import pv
from pv.commands import subjects
from pv.contract.names import Target
from pv.errors import UsageError
from pv.source.project import find_project
from tests.commands.small import Project


@pytest.mark.parametrize("text", ["no subject", "os:_exit", "a..b", "a:b.", ""])
def test_text_that_names_no_code_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"expected module or module:attribute; a hint$"):
        subjects.target_of(text, "; a hint")


def test_target_has_a_module_and_an_attribute() -> None:
    assert subjects.target_of("a.b:c.d") == Target("a.b", "c.d")


def test_declared_subject_is_found_by_name_and_by_target(project: Project) -> None:
    folder = project("compared")
    (contract,) = pv.load([folder / "contracts"]).contracts
    found = [subjects.named(contract, text, find_project(folder)) for text in ("modest", "peers.modest")]
    assert found == [Target("peers.modest")] * 2
    with pytest.raises(UsageError, match="did you mean 'modest'"):
        subjects.named(contract, "modst", find_project(folder))


def test_subject_whose_distribution_is_absent_is_refused_with_its_extra(project: Project) -> None:
    folder = project("compared")
    extras = '[project.optional-dependencies]\nothers = ["No_Such.Distribution[all]>=2"]\n'
    (folder / "pyproject.toml").write_text((folder / "pyproject.toml").read_text() + extras)
    (contract,) = pv.load([folder / "contracts"]).contracts
    with pytest.raises(UsageError, match=r"pip install no-such-distribution \(extra others\)$"):
        subjects.must_be_installed(contract, Target("peers.absent"), find_project(folder))
    subjects.must_be_installed(contract, Target("peers.modest"), find_project(folder))
    installed = tuple(replace(other, package="pytest") for other in contract.subjects)
    subjects.must_be_installed(replace(contract, subjects=installed), Target("peers.absent"), find_project(folder))
