"""Every divergence of the trainer has a function, a textbook formula, and an oracle that attacks it."""

from falsifiers.support import divergence_oracles
from reference_trainer.distillation import divergences, gradcheck
from reference_trainer.distillation.objective import DIVERGENCES, WITH_BETA


def test_tables_of_divergences_have_the_same_names() -> None:
    for table in (divergences.BY_NAME, gradcheck.TEXTBOOK, divergence_oracles.DIVERGENCES):
        assert table.keys() == DIVERGENCES.keys()


def test_oracles_try_several_betas_where_one_counts() -> None:
    assert {name for name, each in divergence_oracles.DIVERGENCES.items() if len(each.betas) > 1} == set(WITH_BETA)
