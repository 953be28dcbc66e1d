"""Writes contracts/children.yaml: a falsifier for every kind of child."""

import json
from pathlib import Path

REACHED = ["edit", "swap", "apart-edit", "apart-swap"]
CASES = {
    "console": ("console", {}, REACHED),
    "spawn": ("spawn", {}, REACHED),
    "exit": ("module", {"leave": ["os._exit"]}, REACHED),
    "exception": ("module", {"leave": ["exception"]}, REACHED),
    "unreached": ("module", {"leave": []}, ["unused-edit"]),
    "cleaned": ("cleaned", {}, ["edit"]),
    "cleaned-apart": ("cleaned_beside_the_subject", {}, ["apart-edit"]),
    "killed": ("module", {"leave": ["kill"]}, ["edit"]),
    "killed-apart": ("killed_beside_the_subject", {}, ["apart-edit"]),
    "broken-swap": ("module", {"leave": []}, ["unloadable"]),
}
MUTANTS = {
    "edit": {"edit": {"function": "pkg.core:double", "find": "number * 2", "replace": "number * 3"}},
    "swap": {"swap": {"object": "pkg.core:double", "with": "falsifiers.swaps:triple"}},
    "apart-edit": {"edit": {"function": "pkg.apart:add", "find": "number + 1", "replace": "number"}},
    "apart-swap": {"swap": {"object": "pkg.apart:add", "with": "falsifiers.swaps:keep"}},
    "unloadable": {"swap": {"object": "pkg.apart:add", "with": "falsifiers.broken_swaps:add"}},
    "unused-edit": {"edit": {"function": "pkg.core:unused", "find": "number - 1", "replace": "number"}},
}

falsifiers = [
    {
        "id": name,
        "rule": name,
        "prediction": "7",
        "if_fails": name,
        "test": "falsifiers/falsify_children.py::falsify_seven",
        "run": f"of-{name}",
        "kills": kills,
    }
    for name, (_, _, kills) in CASES.items()
]
runs = [
    {
        "name": f"of-{name}",
        "callable": f"falsifiers/falsify_children.py::{function}",
        "arguments": arguments,
        "small": arguments,
        "limit": 100,
    }
    for name, (function, arguments, _) in CASES.items()
]
mutants = [{"id": name, "fault": name, **change} for name, change in MUTANTS.items()]
contract = {
    "schema": "pv/1",
    "metadata": {"id": "children", "version": "1.0.0", "description": "Children", "references": ["here"]},
    "subject": "pkg.core",
    "falsifiers": falsifiers,
    "runs": runs,
    "mutants": mutants,
}
if __name__ == "__main__":
    text = json.dumps(contract, indent=1)
    Path(__file__).with_name("contracts").joinpath("children.yaml").write_text(text + "\n", encoding="utf-8")
