"""A kill is recalled while the fingerprint is unchanged."""

from typing import Any

import pytest

from pv.mutation import summary
from pv.mutation.judge import MutantStatus


def test_what_was_noticed_is_recalled_until_something_that_it_rests_on_changes(shop: Any) -> None:
    first = shop.mutate("shop")
    again = shop.mutate("shop")
    assert shop.fates(again) == shop.fates(first)
    assert [j.recalled for j in again.judged] == [j.status is MutantStatus.KILLED for j in first.judged]
    assert f"{first.count(MutantStatus.KILLED)} cached" in summary.summary(again)
    assert not any(judged.recalled for judged in shop.mutate("shop", fresh=True).judged)
    helper = shop.folder / "helper.py"
    helper.write_text(helper.read_text() + "\n\nUNUSED = 1\n")
    assert not any(judged.recalled for judged in shop.mutate("shop").judged), "what the subject imports is another"
    assert any(judged.recalled for judged in shop.mutate("shop").judged)
    attack = shop.folder / "falsifiers/falsify_shop.py"
    attack.write_text(attack.read_text().replace("pieces = st.integers(0, 20)", "pieces = st.integers(0, 0)"))
    assert shop.fates(shop.mutate("shop")) != shop.fates(first), "a falsifier that tries less notices less"


def test_interrupted_run_goes_on_from_its_kills(shop: Any) -> None:
    def interrupt(progress: Any) -> None:
        if 10 < progress.total == progress.done + 1:  # there are fewer falsifiers
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shop.mutate("shop", on_progress=interrupt)
    again = shop.mutate("shop")
    assert sum(judged.recalled for judged in again.judged) >= again.count(MutantStatus.KILLED) - 2


def test_a_memory_that_cannot_be_read_remembers_nothing(shop: Any) -> None:
    first = shop.mutate("shop")
    for content in ("nonsense", '{"a": ["odd", ""]}'):
        (shop.folder / ".pv_cache/mutants/shop.json").write_text(content)
        again = shop.mutate("shop")
        assert shop.fates(again) == shop.fates(first) and not any(judged.recalled for judged in again.judged)
    assert (shop.folder / ".pv_cache/.gitignore").read_text() == "*\n"
