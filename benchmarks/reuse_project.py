"""The project that `benchmarks/reuse.py` changes: each claim sees the code or the data in another way."""

CLAIMS = {
    "shop.price": {
        "PLAIN": "assert subject.price(3, 2) == 12 and subject.half(8) == 4 and subject.ratio(1, 4) == 0.25",
        "DECORATED": "from shop import decorated\nassert decorated.twice(3) == 6 and decorated.kept(2) == [2, 2]",
        "CLASSES": "from shop import classes\nassert classes.summary() == SUMMARY",
        "LAZY": "from shop import lazy\nassert lazy.load(4) == 9 and lazy.fast() == 'slow' and lazy.made == 5",
        "STATE": "from shop import state\nassert state.work() == [1, 3, 6] and state.patched() == 7",
        "ASYNC": "from shop import flow\nassert flow.run() == [0, 2, 4] and flow.guarded() == 'in,out'",
        "NAMES": "from shop.star import area, side\nassert area(2) == 4 and side == 2",
        "SPACE": "import space.left\nassert space.left.value() == 1 and subject.half(2) == 1",
        "TEXT": "from shop import text\nassert text.executed() == 3 and text.lines() == 2 and text.doc() == 'Says.'",
        "CONSTS": "from shop import text\nassert 41 in text.consts()",
        "WARNED": "from shop import hidden, text\nfrom warnings import formatwarning as shown\n"
        "shown('', Warning, hidden.__file__, 1)\n"
        "assert 'return 41' in text.source_of_hidden()",
        "LOADER": "from shop import text\nassert 'return 41' in text.loader_source()",
    },
    "shop.data": {
        "JSON": "assert subject.rate() == 2 and subject.linked() == 5",
        "SQL": "assert subject.rows() == 1",
        "PICKLE": "assert subject.unpickled() == 4",
        "HIDDEN": "assert subject.hidden() == 1",
        "NESTED_HIDDEN": "assert subject.nested_hidden() == 1",
        "OPTIONAL": "assert subject.optional() == 'none'",
        "EXISTS": "assert subject.exists() is False",
        "SIZE": "assert subject.size() == 2",
        "LINK": "assert subject.link() == 'v1'",
        "OUTSIDE": "assert subject.outside() == 1",
        "FOLDERS": "assert subject.folders() == 1",
        "VARIABLE": "assert subject.variable() == 'unset'",
    },
    "shop.registry": {
        "PLUGINS": "assert subject.plugins() == ['one']",
        "WALKED": "assert subject.walked() == ['one']",
        "GLOBBED": "assert subject.globbed() == 1",
        "REGISTERED": "assert sorted(subject.REGISTRY) == ['a', 'b'] and subject.first()",
        "ENTRY": "assert subject.entries() == ['shop.price:price']",
        "VENDOR": "assert subject.vendored() == 'vendor'",
        "EXTRA": "assert subject.extra() is None",
        "SIBLING": "assert subject.sibling() == 1",
    },
    "shop.child": {
        "MODULE": "assert subject.module() == '6'",
        "SCRIPT": "assert subject.script() == '4'",
        "SCRIPT_DOCS": "assert subject.script_docs() == 'Help.'",
        "COMMAND": "assert subject.command() == '4'",
        "SHELL": "assert subject.shell() == '0'",
        "FORKED": "assert subject.forked() == 4",
        "SPAWNED": "assert subject.spawned() == [4]",
        "THREAD": "assert subject.threaded() == [4]",
    },
    "shop.warnings": {
        "OWN_NAMES": "assert subject.sources() == ['one.py'] and 'def half' in subject.text()",
    },
    "shop.models": {
        "MODEL": "assert subject.Item(price=2).total() == 4 and subject.schema() == 'An item.'",
        "CLICK": "assert 'Sell it.' in subject.help_text()",
        "MISSING": "assert subject.Lazy().anything == 3 and subject.attribute == 8",
    },
}
FILES = {
    "pyproject.toml": '[tool.pv]\nroots = ["."]\n',
    "shop/__init__.py": '"""A shop."""\nfrom shop.price import price\nfrom shop.state import counter\n',
    "shop/price.py": '''"""Prices."""
from shop.tax import tax
RATE = 2
UNUSED = 5

def price(cents, pieces=1):
    """Return the price."""
    if cents < 0:
        raise ValueError("negative")
    total = cents * pieces * RATE
    return total + tax()

def half(number):
    return number // 2  # rounded

def ratio(part, whole):
    values = [part / whole for _ in range(2)]
    best = max(values)
    return best if part >= 0 and whole != 0 else -best

def unused(number):
    while number > 9:
        number -= 3
    return not number
''',
    "shop/tax.py": "def tax():\n    return 0\n",
    "shop/decorated.py": """import functools

def repeat(times):
    def decorate(function):
        @functools.wraps(function)
        def called(number):
            return function(number) * times
        return called
    return decorate

@repeat(2)
def twice(number):
    return number

@functools.lru_cache(maxsize=None)
def cached(number):
    return number

def kept(number, default=[]):
    values = list(default)
    for _ in range(2):
        values.append(cached(number))
    return values
""",
    "shop/classes.py": """import dataclasses

SEEN = []
class Meta(type):
    def __new__(meta, name, bases, space):
        space["tag"] = name.lower()
        return super().__new__(meta, name, bases, space)

class Base:
    factor = 3
    def __init_subclass__(cls):
        SEEN.append(cls.__name__)
    def area(self):
        return self.side * self.factor

class Square(Base):
    side = 2
    @property
    def double(self):
        return 2 * self.area()
    @staticmethod
    def one():
        return 1
    @classmethod
    def name(cls):
        return cls.__name__

class Tagged(metaclass=Meta):
    def __eq__(self, other):
        return True
    __hash__ = None

@dataclasses.dataclass(order=True)
class Point:
    x: int = 1
    y: int = dataclasses.field(default_factory=lambda: 2)
    def __post_init__(self):
        self.total = self.x + self.y

def summary():
    square = Square()
    return [square.area(), square.double, square.one(), square.name(), SEEN, Tagged.tag, Tagged() == 1, Point().total,
            Point() < Point(2)]
""",
    "shop/lazy.py": """made = [number + 1 for number in range(5)][-1]
key = lambda value: value * 2

def load(number):
    from shop.late import late
    return late(number) + 1

def fast():
    try:
        from shop import speedups
    except ImportError:
        return "slow"
    return speedups.fast()
""",
    "shop/late.py": "from shop.lazy import key\n\ndef late(number):\n    return key(number)\n",
    "shop/state.py": """import shop.tax
counter = {"calls": 0}
calls = 0

def work():
    found = []
    for step in (1, 2, 3):
        counter["calls"] += step
        found.append(counter["calls"])
    return found

def replacement():
    return 7

class Box:
    value = 1

Box.value = replacement

def patched():
    return Box.value()
""",
    "shop/flow.py": """import asyncio
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
""",
    "shop/star.py": "from shop.shapes import *\n",
    "shop/shapes.py": "__all__ = ['area', 'side']\nside = 2\n\ndef area(number):\n    return number * number\n",
    "space/left.py": "def value():\n    return 1\n",
    "shop/text.py": """import inspect
from pathlib import Path
from shop import hidden

def executed():
    space = {}
    exec(Path("shop/code.txt").read_text(), space)
    return space["answer"]()

def lines():
    return len(inspect.getsource(hidden.measured).splitlines())

def doc():
    return hidden.spoken.__doc__

def consts():
    return hidden.secret.__code__.co_consts

def source_of_hidden():
    return inspect.getsource(hidden.secret)

def loader_source():
    return hidden.__loader__.get_source("shop.hidden")
""",
    "shop/code.txt": "def answer():\n    return 3\n",
    "shop/hidden.py": '''def measured():
    return 1

def spoken():
    """Says."""

def secret():
    return 41
''',
    "shop/data.py": """import json
import os
import pickle
import sqlite3
from pathlib import Path

def rate():
    return json.loads(Path("shop/rate.json").read_text())["rate"]

def linked():
    return json.loads(Path("assets/current.json").read_text())

def rows():
    with sqlite3.connect("file:assets/rows.db?mode=ro", uri=True) as rows:
        return rows.execute("SELECT count(*) FROM rows").fetchone()[0]

def unpickled():
    return pickle.loads(Path("assets/half.pickle").read_bytes())(8)

def hidden():
    return int(Path(".settings/level").read_text())

def nested_hidden():
    return int(Path("assets/.level").read_text())

def optional():
    try:
        return Path("assets/optional.json").read_text()
    except FileNotFoundError:
        return "none"

def exists():
    return os.path.exists("assets/switch") or Path("assets/deeper/switch").is_file() or os.access("assets/x", 4)

def size():
    return Path("assets/sized.bin").stat().st_size

def link():
    return os.readlink("assets/now")

def outside():
    return int(Path("../beside/level.txt").read_text())

def folders():
    return sum(entry.is_dir() for entry in os.scandir("assets/groups"))

def variable():
    return os.environ.get("SHOP_MODE", "unset")
""",
    "shop/rate.json": '{"rate": 2}\n',
    "assets/five.json": "5\n",
    "assets/six.json": "6\n",
    "assets/.level": "1\n",
    "assets/sized.bin": "1\n",
    "assets/groups/one/item": "1\n",
    "assets/groups/two": "1\n",
    "assets/v1/x": "1\n",
    "assets/v2/x": "1\n",
    ".settings/level": "1\n",
    "../beside/level.txt": "1\n",
    "../beside/sibling.py": "def level():\n    return 1\n",
    "shop/registry.py": """import glob
import importlib
import importlib.metadata
import os
import pkgutil
import sys
from pathlib import Path
import shop.plugins

REGISTRY = {}

def register(name):
    def added(function):
        REGISTRY[name] = function
        return function
    return added

@register("a")
def first():
    return 1

@register("b")
def second():
    return 2

def plugins():
    names = sorted(name[:-3] for name in os.listdir("shop/plugins") if name.endswith(".py") and name[0] != "_")
    return [importlib.import_module(f"shop.plugins.{name}").NAME for name in names]

def walked():
    return [found.name for found in pkgutil.iter_modules(shop.plugins.__path__)]

def globbed():
    return len(glob.glob("shop/plugins/[a-z]*.py"))

def entries():
    found = importlib.metadata.distributions(path=["."])
    return [entry.value for each in found for entry in each.entry_points]

def vendored():
    sys.path[:0] = ["override", "vendor"]
    return importlib.import_module("thing").WHO

def extra():
    try:
        from extras import fast
    except ImportError:
        return None
    return fast

def sibling():
    sys.path.insert(0, "../beside")
    return importlib.import_module("sibling").level()
""",
    "shop/plugins/__init__.py": "",
    "shop/plugins/one.py": 'NAME = "one"\n',
    "shop.egg-info/PKG-INFO": "Metadata-Version: 2.1\nName: shop\nVersion: 1\n",
    "shop.egg-info/entry_points.txt": "[shops]\nprice = shop.price:price\n",
    "vendor/thing.py": 'WHO = "vendor"\n',
    "override/other.txt": "1\n",
    "extras/__init__.py": "",
    "shop/child.py": """import multiprocessing
import os
import subprocess
import sys
import threading
from shop.price import half

def said(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

def module():
    return said(sys.executable, "-m", "shop.show")

def script():
    return said(sys.executable, "scripts/show.py")

def script_docs():
    return said(sys.executable, "scripts/docs.py")

def command():
    return said(sys.executable, "-c", "from shop.price import half; print(half(8))")

def shell():
    return said("sh", "-c", "cat shop/till.txt")

def forked():
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.write(writing, bytes([half(8)]))
        os._exit(0)
    os.wait()
    return os.read(reading, 1)[0]

def spawned():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found = pool.map(half, [8])
        pool.close()
        pool.join()
    return found

def threaded():
    found = []
    thread = threading.Thread(target=lambda: found.append(half(8)))
    thread.start()
    thread.join()
    return found
""",
    "shop/show.py": "from shop.price import price\n\nif __name__ == '__main__':\n    print(price(3))\n",
    "shop/till.txt": "0\n",
    "scripts/show.py": "import sys\nsys.path.insert(0, '.')\nfrom shop.price import half\nprint(half(8))\n",
    "scripts/docs.py": "import sys\nsys.path.insert(0, '.')\nimport shop.help\nprint(shop.help.bare.__doc__)\n",
    "shop/help.py": 'def bare():\n    """Help."""\n',
    "shop/warnings.py": """import os
from pathlib import Path

def sources():
    return sorted(name for name in os.listdir("shop/plugins") if name.endswith(".py") and name[0] != "_")

def text():
    return Path("shop/price.py").read_text()
""",
    "shop/models.py": '''import click
import pydantic

class Item(pydantic.BaseModel):
    """An item."""
    price: int
    def total(self):
        return self.price * 2

def schema():
    return Item.model_json_schema()["description"]

@click.command()
def sell():
    """Sell it."""

def help_text():
    return sell.get_help(click.Context(sell))

class Lazy:
    def __getattr__(self, name):
        return 3

def __getattr__(name):
    if name == "attribute":
        return 8
    raise AttributeError(name)
''',
}
HEAD = "SUMMARY = [6, 12, 1, 'Square', ['Square'], 'tagged', True, 3, True]\n"
LINKS = {"assets/current.json": "five.json", "assets/now": "v1"}
