import asyncio

import pytest
import pytest_asyncio


@pytest_asyncio.fixture
async def run():
    await asyncio.sleep(0)
    return "awaited"


@pytest.mark.asyncio
async def test_awaited(run, subject):
    await asyncio.sleep(0)
    assert run == "awaited" and subject


@pytest.mark.asyncio
async def test_awaited_and_failing(device):
    raise ValueError(device)
