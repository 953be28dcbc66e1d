"""Another plugin, with fixtures of the names that falsifiers use."""

import pytest


@pytest.fixture
def subject():
    return "a line of an e-mail"


@pytest.fixture(params=["cpu", "disk"])
def device(request):
    return request.param


@pytest.fixture(scope="session")
def run():
    return lambda: "ran"
