import unittest

import pytest
import shop


def test_subject(subject):
    assert subject == "a line of an e-mail"


def test_device(device):
    assert device in ("cpu", "disk")


def test_run(run):
    assert run() == "ran"


def test_all(subject, device, run, box):
    assert subject and device and run() and box


@pytest.mark.parametrize("subject", ["own"])
def test_own_parameters(subject):
    assert subject == "own"


def test_failing(subject):
    assert subject == "another line"


@pytest.mark.skip(reason="not yet")
def test_skipped(run):
    raise AssertionError


@pytest.mark.xfail(strict=True)
def test_expected_failure(device):
    raise AssertionError


@pytest.fixture
def broken():
    raise RuntimeError("the fixture is broken")


def test_error(broken):
    assert shop.total([1]) == 1


class TestMethods:
    def falsify_address(self, text):
        """No test: a helper of this class."""

    def test_method(self, device):
        assert device


class Unit(unittest.TestCase):
    def test_unit(self):
        self.assertEqual(shop.double(2), 4)


def falsify_signature(text):
    """No test: a helper of this file."""


def prove_identity(text):
    """No test: a helper of this file."""
