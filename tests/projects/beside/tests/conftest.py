import pytest


@pytest.fixture(scope="session", params=["small", "large"])
def box(request):
    return request.param
