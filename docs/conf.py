"""How Sphinx makes the site: `make docs`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # plain_docstrings

from fmnes.version import __version__

project = "fmnes"
version = release = __version__
copyright = "the authors of fmnes"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "plain_docstrings",
]
exclude_patterns = ["_build", "skeleton"]
nitpicky = False
suppress_warnings = ["misc.highlighting_failure"]

# Pages are Markdown that reads well in the repository, too: no directive where a link will do.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]

# The copy button leaves out prompts and output.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# Imported to be described, never called; the others come with the extra `dev`.
autodoc_mock_imports = ["jax", "distributed", "ray", "mpi4py", "joblib"]
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings say it in words
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True  # fields of classes are no pages of their own
autodoc_class_signature = "mixed"
add_module_names = False
toc_object_entries_show_parents = "hide"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100

html_theme = "furo"
html_title = f"fmnes {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
