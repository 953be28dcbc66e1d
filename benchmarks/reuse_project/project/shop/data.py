import json
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
