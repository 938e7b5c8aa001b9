"""Configuration of Sphinx: ``make docs`` builds a site from the Markdown pages of this folder."""

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
myst_heading_anchors = 3  # levels of headings that links may point to
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
maximum_signature_line_length = 130


def link_outside_files(app: Sphinx, page: str, source: list[str]) -> None:
    """Make links to Markdown outside of this folder, which is not part of the site, point to the file."""
    up = page.count("/") + 1
    source[0] = re.sub(rf"\]\((?=(?:\.\./){{{up}}}[\w/-]+\.md\))", "](path:", source[0])


def setup(app: Sphinx) -> None:
    """Register the hook; Sphinx calls this first."""
    app.connect("source-read", link_outside_files)
