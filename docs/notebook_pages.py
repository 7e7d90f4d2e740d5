"""A hook of MkDocs: notebooks as pages, and the schema of a dossier beside them."""

import json
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page of Markdown for each notebook, so that its links are checked."""
    schema = Path(config.docs_dir).parent / "src/fferm/auditing/dossier.schema.json"
    files.append(File.generated(config, schema.name, abs_src_path=str(schema)))
    for notebook in [file for file in files if file.src_uri.endswith(".ipynb")]:
        page = notebook.src_uri.removesuffix(".ipynb") + ".md"
        text = to_markdown(Path(notebook.abs_src_path), Path(page).stem)
        files.append(File.generated(config, page, content=text))
    return files


def to_markdown(path: Path, name: str) -> str:
    """Return the cells of an executed notebook, and what they printed."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source.replace(".ipynb)", ".md)"))
            continue
        parts.append(f"```python\n{source}\n```")
        text = "".join("".join(out["text"]) for out in cell["outputs"])
        if text:
            parts.append(f'```text title="Output"\n{text.rstrip()}\n```')
    parts.append(f"[This page as a notebook]({name}.ipynb)")
    return "\n\n".join(parts)
