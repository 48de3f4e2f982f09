"""Settings of the book; ``make book`` runs scripts/book.py, which runs Sphinx with them.

Nothing is loaded from another host: the theme brings its fonts and scripts, and browsers draw
formulas themselves (MathML).
"""

from pathlib import Path

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from pygments.lexers.special import TextLexer

project = "What does your model look at?"
author = "the contributors"
html_title = project
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "sphinx_book_theme"
html_theme_options = {
    "home_page_in_toc": True,
    "show_navbar_depth": 1,
    "show_toc_level": 2,
    "use_download_button": True,
    "use_fullscreen_button": False,
    "navbar_persistent": [],  # the search is in the sidebar
}
html_context = {"default_mode": "auto"}  # light or dark, as the reader's system
html_static_path = ["_static"]
html_css_files = ["book.css"]
html_favicon = "_static/icon.svg"
html_search_scorer = str(Path(__file__).parent / "search_scorer.js")
html_extra_path = ["extra"]  # reports and viewers, which are pages of their own
html_copy_source = True
html_show_sphinx = False
html_show_search_summary = False  # the search would fetch pages, which a browser forbids in files
html_math_renderer = "mathml"

# Notebooks are shown as they are committed.
nb_execution_mode = "off"
nb_ipywidgets_js = {}  # a live widget is blank without its kernel
nb_merge_streams = True
myst_enable_extensions = ["dollarmath", "attrs_block"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
suppress_warnings = ["ref.python"]  # an attribute's name that two classes have

FORMATS = ("brackets", "conllu", "glove", "plain")  # of corpora; no lexer knows them


def add_inline_formula(writer, node):  # noqa: ANN001, ANN201
    """Write a formula within a line."""
    writer.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def add_formula(writer, node):  # noqa: ANN001, ANN201
    """Write a formula on a line of its own."""
    formula = tex2mathml(node.astext(), as_block=True)
    writer.body.append(f'<div class="formula">{formula}</div>')
    raise nodes.SkipNode


def setup(app):  # noqa: ANN001, ANN201
    """Tell Sphinx about formulas and the names of formats."""
    app.add_html_math_renderer("mathml", (add_inline_formula, None), (add_formula, None))
    for name in FORMATS:
        app.add_lexer(name, TextLexer)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
