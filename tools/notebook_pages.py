"""Shows the notebooks of docs/notebooks on the site, with what they printed: a hook of mkdocs."""

import json
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files


def on_files(files: Files, config: Any) -> Files:
    """A page of Markdown in place of each notebook, so that its links are checked like any other's."""
    for notebook in [file for file in files if file.src_uri.endswith(".ipynb")]:
        files.remove(notebook)
        text = markdown(Path(notebook.abs_src_path or ""))
        files.append(File.generated(config, notebook.src_uri.replace(".ipynb", ".md"), content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Other pages link to the notebooks themselves, which a forge shows; here to their pages."""
    return markdown.replace(".ipynb)", ".md)")


def markdown(path: Path) -> str:
    """Cells as they are, what they printed in blocks behind them."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data:
                parts.append(f"![](data:image/png;base64,{''.join(data['image/png']).strip()})")
            elif text := "".join(output.get("text") or data.get("text/plain", "")).strip("\n"):
                parts.append(f"```text\n{text}\n```")
    return "\n\n".join(parts) + "\n"
