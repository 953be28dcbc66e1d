"""One distribution, one version."""

from importlib.metadata import version

import pv
import reference_trainer


def test_both_packages_have_the_version_that_is_installed() -> None:
    assert pv.__version__ == reference_trainer.__version__ == version("pv-contracts")
