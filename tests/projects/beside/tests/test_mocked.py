import random

import catalog
import pytest
import shop


def test_mocked(mocker, run):
    mocker.patch("shop.double", return_value=5)
    assert shop.double(1) == 5


@pytest.mark.timeout(1)
def test_endless(subject):
    while True:
        pass


_SEEN = []


@pytest.mark.flaky(reruns=2)
def test_flaky(device):
    _SEEN.append(device)
    assert _SEEN.count(device) > 1


def test_random_numbers(subject):
    assert 0 <= random.random() < 1


def test_module_of_the_first_folder_on_the_path():
    assert catalog.PRICES
