"""Hooks of mkdocs.yml: notebooks, stored measurements and CONTRIBUTING.md become pages, and formulas MathML.

Notebooks are shown with the outputs that they are stored with; nothing is run.
"""

from __future__ import annotations

import html
import re
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from nbconvert import MarkdownExporter

import robustcmp as rc

ROOT = Path(__file__).parents[1]
NOTEBOOKS, MEASUREMENTS = ROOT / "notebooks", ROOT / "docs" / "measurements"
# What pymdownx.arithmatex leaves of a formula: \(…\) in a span, \[…\] in a div.
INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
DISPLAY = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.DOTALL)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add to the navigation the notebooks, under their own heading before the reference, and CONTRIBUTING.md."""
    pages = [{_title(path): f"notebooks/{path.stem}.md"} for path in sorted(NOTEBOOKS.glob("*.ipynb"))]
    sections = [next(iter(entry)) for entry in config.nav or []]
    (config.nav or []).insert(sections.index("Reference"), {"Notebooks": pages})
    (config.nav or [])[-1]["Contributing"].append({"Commands and rules": "contributing.md"})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Make a Markdown page of each notebook, a file of each picture in it, and the page of each stored measurement."""
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        name, notebook = path.stem, nbformat.read(path, as_version=4)
        resources = {"output_files_dir": f"{name}_files", "unique_key": name}
        text, found = MarkdownExporter().from_notebook_node(notebook, resources=resources)
        files.append(File.generated(config, f"notebooks/{name}.md", content=text))
        for picture, content in found["outputs"].items():
            files.append(File.generated(config, f"notebooks/{picture}", content=content))
    for path in sorted(MEASUREMENTS.iterdir()):
        with tempfile.TemporaryDirectory() as directory:
            rc.open_benchmark(path).to_html(page := Path(directory, "report.html"))
            content = page.read_text(encoding="utf-8")
        files.append(File.generated(config, f"measurements/{path.name}/report.html", content=content))
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    files.append(File.generated(config, "contributing.md", content=text.replace("](docs/", "](")))
    return files


def on_page_markdown(markdown: str, page: Any, config: MkDocsConfig, files: Files) -> str:
    """Lead links to files of the repository outside docs/ to their pages of the site."""
    if page.file.src_uri.startswith("notebooks/"):
        markdown = re.sub(r"\]\(([\w-]+)\.ipynb", r"](\1.md", markdown)
        return re.sub(r"\]\(\.\./docs/", "](../", markdown)
    markdown = markdown.replace("](../CONTRIBUTING.md)", "](contributing.md)")
    markdown = re.sub(r"\]\((measurements/[\w-]+)/manifest\.json", r"](\1/report.html", markdown)
    return re.sub(r"\]\(\.\./notebooks/([\w-]+)\.ipynb", r"](notebooks/\1.md", markdown)


def on_page_content(content: str, page: Any, config: MkDocsConfig, files: Files) -> str:
    """Typeset the formulas."""
    content = INLINE.sub(lambda formula: _mathml(formula[1], "inline"), content)
    content = DISPLAY.sub(lambda formula: _mathml(formula[1], "block"), content)
    if 'class="arithmatex"' in content:
        raise PluginError(f"{page.file.src_uri}: expected every formula as MathML, found one that was not recognised")
    return content


def _mathml(formula: str, display: str) -> str:
    made = str(convert(html.unescape(formula), display=display))
    if "\\" in made:  # latex2mathml copies what it does not know
        raise PluginError(f"expected a formula that latex2mathml knows, received {formula}")
    return made


def _title(path: Path) -> str:
    first = nbformat.read(path, as_version=4).cells[0].source.splitlines()[0]
    return str(first).lstrip("# ")
