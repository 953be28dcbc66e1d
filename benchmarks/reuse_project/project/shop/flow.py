import asyncio
import contextlib

def numbers(limit):
    for number in range(limit):
        yield number * 2

async def fetch(limit):
    return [number for number in numbers(limit)]

def run():
    return asyncio.run(fetch(3))

@contextlib.contextmanager
def noted(log):
    log.append("in")
    try:
        yield
    finally:
        log.append("out")

def guarded():
    log = []
    with noted(log):
        pass
    return ",".join(log)
