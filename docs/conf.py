"""How the pages of this folder become a site: ``make docs``. They are plain Markdown and read well without it."""

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
