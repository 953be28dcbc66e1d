"""The place of a process, as a launcher gives it in the environment."""

import pytest

from reference_trainer.config.place import placed
from reference_trainer.errors import SettingError


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"RANK": "0"}, "'' for the variable WORLD_SIZE"),
        ({"WORLD_SIZE": "2"}, "'' for the variable RANK"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "'2' for the variable RANK: expected an integer from 0 to 1"),
        ({"RANK": "0", "WORLD_SIZE": "two"}, "'two' for the variable WORLD_SIZE"),
        ({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "2"}, "'2' for the variable LOCAL_RANK"),
    ],
)
def test_variable_that_is_no_place_is_named(given: dict[str, str], named: str) -> None:
    with pytest.raises(SettingError) as caught:
        placed(given)
    assert named in str(caught.value)
