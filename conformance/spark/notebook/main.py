"""Runs the cells of a notebook, a JSON list of texts on stdin, in a kernel; prints a list of what each cell shows.

That is the text on stdout, and the error's name and text, or null.
"""

from __future__ import annotations

import json
import sys

import nbformat
from nbclient import NotebookClient

PATIENCE_S = 240


def main() -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in json.load(sys.stdin)])
    NotebookClient(notebook, timeout=PATIENCE_S, allow_errors=True, kernel_name="python3").execute()
    shown = []
    for cell in notebook.cells:
        text = "".join(each.text for each in cell.outputs if each.output_type == "stream" and each.name == "stdout")
        errors = [f"{each.ename}: {each.evalue}" for each in cell.outputs if each.output_type == "error"]
        shown.append({"text": text, "error": errors[0] if errors else None})
    print(json.dumps(shown))


if __name__ == "__main__":
    main()
