"""The faults that docs/peers.md reports are there in the library itself, without contract or adapter."""

from importlib.metadata import PackageNotFoundError, version

import pytest

from falsifiers.peers.reproduce import FAULTS, Fault


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.show.__name__)
def test_a_fault_reproduces_with_the_library_alone(fault: Fault) -> None:
    try:
        version(fault.package)
    except PackageNotFoundError:
        pytest.skip(f"{fault.package} is not installed: it comes with the extra `peers`")
    seen = fault.show()
    assert fault.is_wrong(seen), (
        f"{fault.name}: {fault.package} answers {seen}; is it mended? It should be {fault.right}"
    )
