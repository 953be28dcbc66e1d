"""What `benchmarks/reuse.py` claims of the project in `reuse_project/`: each claim sees code or data in another way."""

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
METADATA = {
    "PKG-INFO": "Metadata-Version: 2.1\nName: shop\nVersion: 1\n",
    "entry_points.txt": "[shops]\nprice = shop.price:price\n",
}
"""The files of the folder `shop.egg-info`, which git ignores."""
HEAD = "SUMMARY = [6, 12, 1, 'Square', ['Square'], 'tagged', True, 3, True]\n"
LINKS = {"assets/current.json": "five.json", "assets/now": "v1"}
