"""Tries the claims of a suite on a subject."""

import importlib
from typing import Any

from hypothesis import Phase, settings

from pv.contract.load import load_file
from pv.contract.suites import suites


class Trying:
    """The claims of a suite, each tried on a few examples."""

    def __init__(self, name: str, examples: int = 8) -> None:
        suite, _ = load_file(suites()[name])
        assert suite is not None
        package = f"pv.suites.{name.replace('-', '_')}"
        self.bench = importlib.import_module(f"{package}.bench").Bench
        few = settings(max_examples=examples, deadline=None, database=None, derandomize=True, phases=(Phase.generate,))
        self.tests = {}
        for each in suite.falsifiers:
            assert each.test is not None
            module = importlib.import_module(each.test.file.removesuffix(".py").replace("/", "."))
            test = getattr(module, each.test.name)
            self.tests[each.id] = few(test) if hasattr(test, "hypothesis") else test
        self.needs = {each.id: tuple(each.options["needs"]) for each in suite.falsifiers}

    def wrong(self, make: Any) -> dict[str, str]:
        """Return the messages of the claims that fail, and "" for those that are not claimed."""
        bench, found = self.bench(make), {}
        for id_, test in self.tests.items():
            if bench.missing(id_, self.needs[id_]):
                found[id_] = ""
                continue
            try:
                test(bench=bench)
            except AssertionError as error:
                found[id_] = str(error)
        return found
