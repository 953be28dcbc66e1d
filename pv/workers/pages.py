"""Memory of a process that is forked often: what a fork copies when it starts, and when it first writes to a page."""

import ctypes
from pathlib import Path

MADV_COLLAPSE = 25  # Linux 6.1; older kernels refuse it, and nothing changes
BLOCKS = range(16, 513, 16)
"""Sizes in bytes of the blocks in which CPython allocates small objects."""
FREE_OF_A_SIZE = 1 << 19
"""Bytes; about twice what is free in blocks of one size after torch and transformers are imported."""

_filled: list[object] = []


def fill() -> None:
    """Fill the free blocks among small objects: a fork that allocates in one copies its page."""
    for size in BLOCKS:
        _filled.extend(_object(size) for _ in range(FREE_OF_A_SIZE // size))


def _object(size: int) -> object:
    """Return a new object that takes one block of this size."""
    header = b"".__sizeof__()
    if size > header:
        return bytes(size - header)
    return float("0.5") if size > object().__sizeof__() else object()


def collapse() -> None:
    """Ask the kernel to hold the private memory in huge pages: a fork copies one entry for 2 MiB instead of 512."""
    libc = ctypes.CDLL(None)
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, permissions, _, _, inode, *_ = line.split()
        if permissions == "rw-p" and inode == "0":
            start, end = (int(address, 16) for address in addresses.split("-"))
            libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), MADV_COLLAPSE)
