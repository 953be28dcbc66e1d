"""Which claims run again after which change: one validation fills the store, then each change is made and undone."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import pv
from pv.commands.why import why
from pv.results.reuse.tree import SETTLED_NS
from pv.source.project import find_project
from tests.support.projects import write

NAMES = (
    *"PRICE STOCK HELP CHILD SHELL LIST GLOB NATIVE CODE QUOTED LOADER ABSENT LOOK LINK READ".split(),
    *"SEARCH OPTIONAL POINTS SCRIPT".split(),
)
ALL = frozenset(NAMES)
PRICED = ALL - {"STOCK", "HELP"}
UNSURE = frozenset(("SHELL",))
"""It starts a program that leaves no log, so every file counts for it."""
SUBJECTS = {"STOCK": "subject: shop.stock", "HELP": "subject: shop.help"}
FILES = {
    "pyproject.toml": '[tool.pv]\nroots = ["."]\n',
    "shop/__init__.py": "from shop.price import price\nfrom shop.stock import Stock\n",
    "shop/price.py": '''"""Prices."""
import shop.tax
RATE = 2

def price(cents, pieces=1):
    """Return the price."""
    return half(cents) * pieces * RATE + shop.tax.tax()

def half(number):
    return number  # not yet halved

def unused(number):
    return number - 1
''',
    "shop/tax.py": "from pathlib import Path\n\ndef tax():\n    return int(Path('shop/tax.txt').read_text())\n",
    "shop/tax.txt": "0\n",
    "shop/unread.txt": "0\n",
    "shop/stock.py": """class Shelf:
    size = 3

    def room(self):
        return self.size

def doubled(function):
    def twice(self):
        return 2 * function(self)
    return twice

class Stock(Shelf):
    @doubled
    def all(self):
        return self.room()

    def lazily(self):
        yield self.room()
""",
    "shop/help.py": 'def described(function):\n    return function.__doc__ or ""\n\ndef bare():\n    """Help."""\n',
    "shop/show.py": "from shop.price import price\nif __name__ == '__main__':\n    print(price(3))\n",
    "shop/more/one.txt": "1\n",
    "shop/found/one.txt": "1\n",
    "shop/entries/one.txt": "1\n",
    "shop/iterated/one.txt": "1\n",
    "shop/quoted.py": "def secret():\n    return 41  # kept\n",
    "shop/data/five.txt": "5\n",
    "shop/data/six.txt": "6\n",
    "../beside.txt": "0\n",
    ".settings/level": "0\n",
    "vendor/thing.py": "WHO = 1\n",
    "override/empty.txt": "",
    "scripts/docs.py": "import shop.quoted\nprint(shop.quoted.secret.__doc__)\n",
    "contracts/shop.yaml": """schema: pv/1
metadata: {id: shop, version: 1.0.0, description: A shop, references: [none]}
subject: shop.price
falsifiers:
"""
    + "".join(
        f"""- id: {name}
  rule: It holds
  prediction: It holds
  if_fails: It is wrong
  test: falsify.py::falsify_{name.lower()}
  {SUBJECTS.get(name, "limit: 50")}
"""
        for name in NAMES
    ),
    "falsify.py": """import os, subprocess, sys

def falsify_price(subject):
    assert subject.price(3, 2) == 12

def falsify_stock(subject):
    assert subject.Stock().all() == 6
    subject.Stock().lazily()

def falsify_help(subject):
    assert subject.described(subject.bare) == "Help."

def falsify_child(subject):
    found = subprocess.run([sys.executable, "-m", "shop.show"], capture_output=True, text=True)
    assert found.stdout == "6\\n"
    assert subject.half(1) == 1

def falsify_shell(subject):
    assert subprocess.run(["cat", "shop/tax.txt"], capture_output=True, text=True).stdout == "0\\n"
    assert subject.half(1) == 1

def falsify_list(subject):
    assert len(os.listdir("shop/more")) == 1
    assert subject.half(1) == 1

def falsify_glob(subject):
    from glob import glob
    from pathlib import Path
    assert len(glob("shop/found/*.txt")) == 1 and len(list(os.scandir("shop/entries"))) == 1
    assert len(list(Path("shop/iterated").iterdir())) == 1 and subject.half(1) == 1

def falsify_native(subject):
    from safetensors import safe_open
    try:
        safe_open("shop/unread.txt", "pt")
    except Exception:
        pass
    assert subject.half(1) == 1

def falsify_code(subject):
    from shop.quoted import secret
    assert 41 in secret.__code__.co_consts and subject.half(1) == 1

def falsify_quoted(subject):
    from inspect import getsource
    from warnings import formatwarning
    from shop import quoted
    formatwarning("", Warning, quoted.__file__, 1)  # the source is in a cache of Python from here on
    assert "return 41" in getsource(quoted.secret) and subject.half(1) == 1

def falsify_loader(subject):
    from shop import quoted
    assert "return 41" in quoted.__loader__.get_source("shop.quoted") and subject.half(1) == 1

def falsify_absent(subject):
    try:
        open("shop/data/absent.txt")
    except FileNotFoundError:
        assert subject.half(1) == 1

def falsify_look(subject):
    assert not os.path.exists("shop/data/switch") and os.path.getsize("shop/data/five.txt") == 2
    assert subject.half(1) == 1

def falsify_link(subject):
    assert os.readlink("shop/data/now.txt") == "five.txt" and subject.half(1) == 1

def falsify_read(subject):
    for name in ("../beside.txt", ".settings/level"):
        with open(name) as file:
            assert file.read() == "0\\n" and subject.half(1) == 1

def falsify_search(subject):
    sys.path[:0] = ["override", "vendor"]
    import thing
    assert thing.WHO == 1 and subject.half(1) == 1

def falsify_optional(subject):
    sys.path.insert(0, "plugins")
    try:
        import turbo
    except ImportError:
        assert subject.half(1) == 1

def falsify_points(subject):
    from importlib.metadata import entry_points
    assert not entry_points(group="shops") and subject.half(1) == 1

def falsify_script(subject):
    found = subprocess.run([sys.executable, "scripts/docs.py"], capture_output=True, text=True)
    assert found.stdout == "None\\n" and subject.half(1) == 1
""",
}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("shop") / "project"
    write(folder, FILES)
    (folder / "shop/data/now.txt").symlink_to("five.txt")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        report = pv.validate(project=find_project(folder), mutants=False, jobs=2)
        assert report.exit_code == 0, [r.reason for c in report.contracts for r in c.results]
        assert running(folder) == frozenset()
        yield folder


def running(folder: Path) -> frozenset[str]:
    """Return the claims that would run."""
    return frozenset(each.claim for each in why(["*"], find_project(folder)) if not each.reused)


@pytest.mark.parametrize(
    ("name", "find", "replace", "expected"),
    [
        ("shop/price.py", "  # not yet halved", "", UNSURE),
        ("shop/price.py", "Return the price.", "Give it.", UNSURE | {"HELP", "SCRIPT"}),
        ("shop/price.py", "Prices.", "All prices.", UNSURE | {"HELP", "SCRIPT"}),
        ("shop/price.py", "half(cents) * pieces * RATE", "(half(cents)\n        * pieces * RATE)", UNSURE),
        ("shop/price.py", "return number - 1", "return number - 7", PRICED),
        ("shop/price.py", "return number - 1", "return 1 - number", UNSURE),
        ("shop/price.py", "* pieces * RATE", "* RATE * pieces", UNSURE | {"PRICE", "CHILD"}),
        ("shop/price.py", "return number  #", "return +number  #", PRICED),
        ("shop/price.py", "RATE = 2", "RATE = 1 + 1", ALL),
        ("shop/price.py", "pieces=1", "pieces=2", ALL),
        ("shop/price.py", "import shop.tax", "import os, shop.tax", ALL),
        ("shop/tax.py", "return int", "return 0 + int", UNSURE | {"PRICE", "CHILD"}),
        ("shop/stock.py", "size = 3", "size = 3.0", ALL),
        ("shop/stock.py", "return self.size", "return +self.size", UNSURE | {"STOCK"}),
        ("shop/stock.py", "return 2 * function", "return +2 * function", ALL),
        ("shop/stock.py", "    @doubled\n", "", ALL),
        ("shop/stock.py", "Stock(Shelf)", "Stock(Shelf, object)", ALL),
        ("shop/stock.py", "yield self.room()", "return self.room()", ALL),
        ("shop/quoted.py", "return 41", "return 42", UNSURE | {"CODE", "QUOTED", "LOADER"}),
        ("shop/quoted.py", "  # kept", "", UNSURE | {"QUOTED", "LOADER"}),
        ("shop/quoted.py", "():\n", '():\n    """Say."""\n', UNSURE | {"QUOTED", "LOADER", "SCRIPT"}),
        ("shop/data/five.txt", "5", "55", UNSURE | {"LOOK", "LINK"}),
        ("../beside.txt", "0", "1", {"READ"}),
        ("shop/help.py", "Help.", "Text.", UNSURE | {"HELP"}),
        ("shop/__init__.py", "from shop.price", "import os\nfrom shop.price", ALL),
        ("falsify.py", "== 12", "== 12.0", UNSURE | {"PRICE"}),
        ("contracts/shop.yaml", "  limit: 50\n- id: STOCK", "  limit: 51\n- id: STOCK", UNSURE | {"PRICE"}),
        ("contracts/shop.yaml", "description: A shop", "description: Some shop", UNSURE),
    ],
)
def test_change_runs_claims_that_it_reaches(
    shop: Path, name: str, find: str, replace: str, expected: frozenset[str]
) -> None:
    path = shop / name
    text = path.read_text()
    assert text.count(find) == 1
    path.write_text(text.replace(find, replace))
    try:
        assert running(shop) == expected
    finally:
        path.write_text(text)
    assert running(shop) == frozenset()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("shop/new.py", UNSURE),
        ("shop/more/two.txt", UNSURE | {"LIST"}),
        ("shop/more/two.py", UNSURE | {"LIST"}),
        ("shop/found/two.md", UNSURE | {"GLOB"}),
        ("shop/entries/.two", UNSURE | {"GLOB"}),
        ("shop/iterated/two", UNSURE | {"GLOB"}),
        ("shop/data/absent.txt", UNSURE | {"ABSENT"}),
        ("shop/data/switch", UNSURE | {"LOOK"}),
        ("override/thing.py", UNSURE | {"SEARCH"}),
        ("override/thing.pyc", {"SEARCH"}),
        ("override/other.py", UNSURE),
        ("vendor/thing/__init__.py", UNSURE | {"SEARCH"}),
        ("turbo.py", UNSURE | {"OPTIONAL"}),
        ("turbo.abi3.so", UNSURE | {"OPTIONAL"}),
        ("turbo/__init__.py", UNSURE | {"OPTIONAL"}),
        ("turbo/part.py", UNSURE | {"OPTIONAL"}),
        ("plugins/turbo.py", UNSURE | {"OPTIONAL"}),
        ("shops.egg-info/PKG-INFO", UNSURE | {"POINTS"}),
        ("json.py", ALL),
        ("json/notes.txt", ALL),
        ("shop/settings.json", UNSURE),
        ("os_like.py", UNSURE),
        ("notes.txt", UNSURE),
        ("run.log", UNSURE),
        (".notes", UNSURE),
        ("notes/one.md", UNSURE),
        ("shop/price/__init__.py", ALL),
    ],
)
def test_claims_run_again_that_can_find_a_new_file(shop: Path, name: str, expected: frozenset[str]) -> None:
    path = shop / name
    made = not path.parent.exists()
    path.parent.mkdir(exist_ok=True)
    path.write_text("")
    try:
        assert running(shop) == expected
    finally:
        path.unlink()
        if made:
            path.parent.rmdir()
    assert running(shop) == frozenset()


def test_the_target_of_a_link_counts(shop: Path) -> None:
    link = shop / "shop/data/now.txt"
    link.unlink()
    link.symlink_to("six.txt")
    assert running(shop) == UNSURE | {"LINK"}
    link.unlink()
    link.symlink_to("five.txt")


@pytest.mark.parametrize(
    ("name", "readers"),
    [("shop/tax.txt", {"PRICE", "CHILD"}), ("shop/unread.txt", {"NATIVE"}), (".settings/level", {"READ"})],
)
def test_data_that_was_opened_counts(shop: Path, name: str, readers: set[str]) -> None:
    """The kernel does not tell who opened it, so it counts also for claims that ran at the same time."""
    (shop / name).write_text("1\n")
    assert running(shop) >= UNSURE | readers
    (shop / name).write_text("0\n")


def test_data_counts_for_its_reader_alone_where_one_claim_runs_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "project"
    write(folder, FILES)
    time.sleep(2 * SETTLED_NS / 1e9)  # else pv itself reads them again between the claims
    monkeypatch.chdir(folder)
    claims = ["NATIVE", "STOCK", "CODE"]
    pv.validate(project=find_project(folder), mutants=False, jobs=1, only=claims)
    (folder / "shop/unread.txt").write_text("1\n")
    assert {each.claim: each.reused for each in why(claims, find_project(folder))} == {
        "NATIVE": False,
        "STOCK": True,
        "CODE": True,
    }


def test_an_option_or_a_variable_makes_another_result(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP", "1")
    assert running(shop) == ALL
    assert why(["PRICE"], find_project(shop))[0].reasons == ("another variable SHOP",)
