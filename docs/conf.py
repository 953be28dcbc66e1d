"""Builds the site with the extra `docs`: `sphinx-build -W -b html docs site`. Pages stay readable in a clone."""

import re
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

DOCS = Path(__file__).parent.resolve()
ROOT = DOCS.parent
REPOSITORY = "https://github.com/OWNER/pv/"
LINK = re.compile(r"\]\((?!https?:|#)([^)\s]+)\)")
sys.path.insert(0, str(ROOT))

import pv  # noqa: E402  (the line above makes it importable)

project, author, copyright = "pv", "The pv authors", "2026, the pv authors"
version = release = pv.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_click"]
exclude_patterns = ["examples", "reproductions"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
suppress_warnings = ["misc.highlighting_failure"]  # an excerpt with `...` is not Python
autodoc_typehints = "none"
default_role = "code"
smartquotes = False  # help texts have options, which begin with two hyphens
html_theme = "furo"
html_title = f"pv {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {"source_repository": REPOSITORY, "source_branch": "main", "source_directory": "docs/"}
html_math_renderer = "mathml"


def outside(app: Any, name: str, source: list[str]) -> None:
    """Let links to files that are not pages of the site lead to the repository."""

    def lead(found: "re.Match[str]") -> str:
        path = (DOCS / name / ".." / found[1].partition("#")[0]).resolve()
        page = path.suffix == ".md" and DOCS in path.parents
        return found[0] if page else f"]({REPOSITORY}blob/v{release}/{path.relative_to(ROOT)})"

    source[0] = LINK.sub(lead, source[0])


def inline(writer: Any, node: nodes.Element) -> None:
    writer.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def block(writer: Any, node: nodes.Element) -> None:
    writer.body.append(f'<div class="math">{tex2mathml(node.astext(), as_block=True)}</div>')
    raise nodes.SkipNode


def plain(app: Any, context: Any, lines: list[str]) -> None:
    """Keep the stars of a help text, which is not reStructuredText."""
    lines[:] = [line.replace("*", r"\*") for line in lines]


def setup(app: Any) -> None:
    """Render mathematics as MathML, so that no page loads a script from elsewhere."""
    app.connect("source-read", outside)
    app.connect("sphinx-click-process-description", plain)
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
