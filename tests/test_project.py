"""What holds for every file of the project: it says what it is for, and stays small enough to be read at once."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import NamedTuple

from conftest import LONG, SPARK
from docs.conf import write_pages
from minibroker import __version__
from tests.conftest import OF_PIPELINE

ROOT = Path(__file__).parent.parent
INDEX = ROOT / "docs" / "index.md"
PACKAGE = sorted((ROOT / "minibroker").rglob("*.py"))
PYTHON = [
    *PACKAGE,
    *(
        path
        for part in ("tests", "conformance", "benchmarks", "kits")
        for path in sorted((ROOT / part).rglob("*.py"))
        if not {"target", "node_modules"} & set(path.parts)
    ),
]
DOCSTRING = re.compile(r'(?:#.*\n)*r?"""\S')
WITHOUT_LIBRARIES = """
import sys
from importlib import import_module

class Missing:
    def find_spec(name, path=None, target=None):
        if name in ("pyspark", "pyarrow", "numpy", "pandas", "pyiceberg", "deltalake"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Missing)
for name in sys.argv[1:]:
    import_module(name)
"""
VERSION_ELSEWHERE = {
    "CHANGELOG.md": r"^## \[([0-9.]+)\]",
    "integrations/devcontainer/minibroker/devcontainer-feature.json": r'"version": "(.*?)"',
    "integrations/homebrew/minibroker.rb": r"minibroker-([0-9.]+)\.tar",
    "integrations/testcontainers/index.md": r"minibroker:([0-9.]+)\"",
    "kits/node/package.json": r'"version": "(.*?)"',
    "kits/java/pom.xml": r"<version>(.*?)</version>",
}
# In a docstring or comment: a name with an underscore, or with parentheses.
NAMED = re.compile(r"`(?:\w+\.)*(?:(\w*[a-z]_\w+)(?:\(\))?|(\w+)\(\))`")
ELSEWHERE = {"endpoint_override", "hashCode"}  # of pyarrow, of Java
LINES_MAX = 500
CIRCLE_FILES_MAX = 3
FUNCTION_LINES_MAX = 40


def test_every_file_begins_with_a_docstring() -> None:
    silent = [path for path in PYTHON if not DOCSTRING.match(path.read_text())]  # to parse 1,500 files takes seconds
    assert silent == []


def test_files_have_at_most_500_lines() -> None:
    large = [path for path in PYTHON if path.read_text().count("\n") > LINES_MAX]
    assert large == []


def test_functions_have_at_most_40_lines() -> None:
    assert [f"{path.relative_to(ROOT)}: {name}" for path in PACKAGE for name in parsed(path).large_functions] == []


def test_functions_that_docstrings_and_comments_name_exist() -> None:
    known = ELSEWHERE | {path.stem for path in PYTHON}.union(*(parsed(path).names for path in PACKAGE))
    stale = [
        f"{path.relative_to(ROOT)}: {name}" for path in PACKAGE for name in parsed(path).named if name not in known
    ]
    assert stale == []


def test_import_cycles_have_a_limited_number_of_modules() -> None:
    """Imports for the type checker count, too."""
    files = {module_of(path): path for path in PACKAGE}
    imports = {name: parsed(path).imports & files.keys() - {name} for name, path in files.items()}
    reached = {name: reachable(name, imports) for name in files}
    circles = {frozenset(each for each in reached[name] if name in reached[each]) for name in files}
    assert [sorted(circle) for circle in circles if len(circle) > CIRCLE_FILES_MAX] == []


def test_no_document_suggests_installing_unpublished_packages() -> None:
    """pip finds no `minibroker[registry]` anywhere; a clone, or the libraries by their names, do work."""
    texts = [*PACKAGE, ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").glob("*.md")]
    unpublished = re.compile(r"pip install [^.&`]*\bminibroker\b")  # not `pip install -e . && minibroker`
    wrong = [
        f"{path.name}: {line}" for path in texts for line in path.read_text().splitlines() if unpublished.search(line)
    ]
    assert wrong == []


def test_each_file_that_names_the_version_names_this_one() -> None:
    """The first match in each; a kit that is not there yet names none."""
    files = {name: ROOT / name for name in VERSION_ELSEWHERE}
    texts = {name: path.read_text() for name, path in files.items() if path.exists() or not name.startswith("kits/")}
    found = {name: re.search(VERSION_ELSEWHERE[name], text, re.MULTILINE) for name, text in texts.items()}
    assert {name: match and match[1] for name, match in found.items()} == dict.fromkeys(found, __version__)


def test_the_modules_to_compile_exist() -> None:
    described = tomllib.loads((ROOT / "pyproject.toml").read_text())
    listed = described["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["mypyc"]["include"]
    assert [path for path in listed if not (ROOT / path.removeprefix("/")).is_file()] == []


def test_the_package_ships_its_types() -> None:
    assert (ROOT / "minibroker" / "py.typed").is_file()


def test_tests_outside_of_the_pipeline_are_imported_without_its_libraries() -> None:
    files = [path for path in PYTHON if path.is_relative_to(ROOT / "tests") and path.name.startswith("test_")]
    others = [path for path in files if not any(path.is_relative_to(folder) for folder in OF_PIPELINE)]
    names = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in others
        if "from minibroker.pipeline" in path.read_text() and path != Path(__file__)
    ]
    assert names
    subprocess.run([sys.executable, "-c", WITHOUT_LIBRARIES, *names], cwd=ROOT, check=True)


def test_the_test_files_scheduled_first_exist() -> None:
    assert [unit for unit in LONG if unit != SPARK and not (ROOT / unit.partition("::")[0]).is_file()] == []


def test_generated_site_files_are_git_ignored(tmp_path: Path) -> None:
    write_pages(tmp_path)
    written = sorted(path.name for path in tmp_path.iterdir())
    assert written == sorted(re.findall(r"^/docs/(.*)$", (ROOT / ".gitignore").read_text(), re.MULTILINE))
    assert [name for name in written if f"\n{name.removesuffix('.md')}\n" not in INDEX.read_text()] == []


class Parsed(NamedTuple):
    """What tests ask about a file."""

    large_functions: list[str]
    imports: set[str]  # modules; for a name in a module also its full name, as it may be a module
    names: set[str]  # of functions, classes, fields and variables, and all words of texts that are no docstrings
    named: set[str]  # in docstrings and comments


@cache
def parsed(path: Path) -> Parsed:
    """Parse a file once for all tests: to parse all of them takes seconds."""
    text = path.read_text()
    tree = ast.parse(text)
    found = Parsed([], set(), set(), {first or second for first, second in NAMED.findall(text)})
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            found.names.update(re.findall(r"\w+", node.value))
        found.names.update(
            value
            for field in ("name", "id", "attr", "arg", "asname")
            if isinstance(value := getattr(node, field, None), str)
        )
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if lines(node) > FUNCTION_LINES_MAX:
                found.large_functions.append(node.name)
        elif isinstance(node, ast.Import):
            found.imports.update(each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found.imports.update((node.module, *(f"{node.module}.{each.name}" for each in node.names)))
    return found


def lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The length of the function's body, without its docstring."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return 1 + (function.end_lineno or 0) - body[0].lineno if body else 0


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def reachable(start: str, imports: dict[str, set[str]]) -> set[str]:
    """Return the modules that a module imports, also by others."""
    found: set[str] = set()
    left = [start]
    while left:
        new = imports[left.pop()] - found
        found |= new
        left += new
    return found


def test_tables_of_the_site_wrap_long_words() -> None:
    docs = Path(__file__).parents[1] / "docs"
    assert 'html_css_files = ["site.css"]' in (docs / "conf.py").read_text()
    assert "article table.docutils td { overflow-wrap: anywhere;" in (docs / "_static" / "site.css").read_text()
