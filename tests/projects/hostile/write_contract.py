"""Writes the contract that binds every falsifier of this project; `python write_contract.py > contracts/odd.yaml`."""

import ast
from pathlib import Path

HERE = Path(__file__).parent
HEAD = """\
schema: pv/1
metadata:
  id: odd
  version: 1.0.0
  description: Falsifiers that misbehave
  references: [what workers must survive]
subject: subject
mutants:
- {id: tripled, fault: three for two, edit: {function: "subject:double", find: x * 2, replace: x * 3}}
falsifiers:
"""
# In seconds. Only what is meant to reach its limit has a short one, so that a busy machine changes no outcome.
LIMIT, LIMITS = (
    120,
    {
        "slow-to-shrink": 15,
        **dict.fromkeys(("hang-in-python", "hang-in-c", "daemons-then-hang", "stop-itself"), 3),
    },
)


def main() -> None:
    tree = ast.parse((HERE / "falsifiers/falsify_odd.py").read_text())
    parts = [HEAD]
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            name = node.name.removeprefix("falsify_").replace("_", "-")
            parts.append(
                f"- id: {name}\n  rule: it ends\n  prediction: it ends\n  if_fails: it does not\n"
                f"  test: falsifiers/falsify_odd.py::{node.name}\n  kills: [tripled]\n"
                f"  limit: {LIMITS.get(name, LIMIT)}\n"
            )
    print("".join(parts), end="")


if __name__ == "__main__":
    main()
