"""How Sphinx makes the documentation site; `docs/_tools/build.py` runs it ('make docs').

Everything the pages need is part of the site: no fonts, scripts or pictures from elsewhere, and
the search works from the file system.
"""

import os
import re
from typing import Any

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import fewview

project = "fewview"
author = "The fewview developers"
version = release = fewview.__version__
copyright = f"{author}, MIT licence"
language = "en"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_tools"]
myst_heading_anchors = 4  # links to headings, as on other sites that show Markdown
default_role = "code"  # docstrings write `code` as Markdown does

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_default_options = {"members": True}
python_use_unqualified_type_names = True
maximum_signature_line_length = 76
add_module_names = False
napoleon_numpy_docstring = True  # what scikit-learn's mixins bring along
napoleon_use_ivar = True
toc_object_entries = False

html_theme = "furo"
html_title = f"fewview {version}"
html_static_path = ["_static"]
html_favicon = "_static/favicon.svg"
html_css_files = ["fewview.css"]
html_js_files = ["fewview.js"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b5cad", "color-brand-content": "#0b5cad"},
    "dark_css_variables": {"color-brand-primary": "#7ab7ff", "color-brand-content": "#7ab7ff"},
}
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"


def _leave_out(app: Any, what: str, name: str, item: Any, skip: bool, options: Any) -> bool | None:
    """scikit-learn adds routing of metadata to every estimator; nobody looks for it here."""
    routing = name == "get_metadata_routing" or re.fullmatch("set_.*_request", name)
    return True if routing else None


def _name_of_bool(app: Any, what: str, name: str, item: Any, options: Any, lines: Any) -> None:
    """numpy 1 writes `numpy.bool_` where 2 writes `numpy.bool`; to Sphinx the first is a link."""
    lines[:] = [line.replace("numpy.bool_", "numpy.bool") for line in lines]


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-skip-member", _leave_out)
    app.connect("autodoc-process-docstring", _name_of_bool)
