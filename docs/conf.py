"""How the pages of this folder become a site: ``make docs``. They are plain Markdown and read well without it."""

import re

from sphinx.application import Sphinx

import longtail

project = "longtail"
release = longtail.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = "longtail"
html_copy_source = False
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["site.css"]

highlight_language = "none"  # blocks without a language are commands and formulas
myst_heading_anchors = 3  # headings that a link with # may lead to
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
maximum_signature_line_length = 130


def outside_as_files(app: Sphinx, page: str, source: list[str]) -> None:
    """Links to Markdown outside of this folder, which is no part of the site, lead to the file itself."""
    up = page.count("/") + 1
    source[0] = re.sub(rf"\]\((?=(?:\.\./){{{up}}}[\w/-]+\.md\))", "](path:", source[0])


def setup(app: Sphinx) -> None:
    """What Sphinx calls first."""
    app.connect("source-read", outside_as_files)
