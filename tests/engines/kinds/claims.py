"""A claim of every kind, and a contract with the run that one of them reads."""

from pathlib import Path
from typing import Any

from pv.contract.claims import Falsifier, Harness, Run
from pv.contract.finding import Location
from pv.contract.model import Contract
from pv.contract.names import Binding

HERE = Location(Path("c.yaml"))
TEST = Binding("falsifiers/falsify_tiny.py", "falsify_double")
BASE: dict[str, Any] = {"id": "F", "rule": "r", "prediction": "p", "if_fails": "i", "location": HERE}
RUN = Run(name="once", callable=TEST, location=HERE, limit_s=120.0)
CONTRACT = Contract(id="c", version="1", description="", location=HERE, strict=True, runs=(RUN,))
CLAIMS = {
    "property": Falsifier(test=TEST, **BASE),
    "equation": Falsifier(equation="twice", **BASE),
    "run": Falsifier(test=TEST, run="once", **BASE),
    "harness": Harness(test=TEST, bounds={"n": "0..8"}, limit_s=4.0, engine="both", **BASE),
    "suite": Falsifier(test=TEST, options={"needs": []}, **BASE),
    "prose": Falsifier(**BASE),
    "prose harness": Harness(**BASE),
}
