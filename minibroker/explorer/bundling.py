"""All modules of the page as one, made in memory when the page is asked for first: there is no build.

A browser takes some ms for each file, and there are 30. A module becomes a function that returns what it exports; its
imports become constants. The forms of `import` and `export` that the modules use are known here, and no others.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

_FROM: Final = r'from\s*"(?P<path>[^"]+)";?'
_IMPORT: Final = re.compile(rf"import\s*(?:\{{(?P<names>[^}}]*)\}}|\*\s*as\s+(?P<all>\w+)|(?P<default>\w+))\s*{_FROM}")
_LIST: Final = re.compile(rf"^(?P<before>.*?)export\s*\{{(?P<names>[\w$,\s]*)\}}(?:\s*{_FROM}|;?)", re.MULTILINE)
_DECLARED: Final = re.compile(r"^export (?=(?:async )?(?:function|class|const) (?P<name>\w+))", re.MULTILINE)
_DEFAULT: Final = re.compile(r"export default ")
_BLANK: Final = re.compile(r"(?:\s|//[^\n]*\n)*")
_DEFAULT_NAME: Final = "$default"

ReadModule = Callable[[str], str]


class JavaScriptModule(NamedTuple):
    """A module: its imports as (path, declaration), its code without them, and what it exports by name."""

    imports: list[tuple[str, str]]
    code: str
    exports: dict[str, str]


def bundle_modules(first_path: str, read_module: ReadModule) -> str:
    """Return a script that does what the module `first_path` does. `read_module` returns the text of a path.

    Raises ValueError if modules import each other in a circle, or have a form of import or export that is not known.
    """
    modules: dict[str, JavaScriptModule] = {}
    _collect_modules(first_path, read_module, modules, [])
    names = {path: f"$module{number}" for number, path in enumerate(modules)}
    return "".join(_wrap_module_in_function(path, module, names) for path, module in modules.items())


def _collect_modules(
    path: str, read_module: ReadModule, modules: dict[str, JavaScriptModule], importing_paths: list[str]
) -> None:
    """Add a module behind all that it imports."""
    if path in importing_paths:
        raise ValueError(f"{' imports '.join([*importing_paths, path])}")
    if path not in modules:
        module = parse_module(path, read_module(path))
        for imported, _ in module.imports:
            _collect_modules(imported, read_module, modules, [*importing_paths, path])
        modules[path] = module


def _wrap_module_in_function(path: str, module: JavaScriptModule, names: dict[str, str]) -> str:
    """Return a script that runs a module as a function, and assigns its exports to its name in `names`."""
    imports = "".join(f"const {declared} = {names[imported]};\n" for imported, declared in module.imports)
    exports = ", ".join(f"{outside}: {inside}" for outside, inside in module.exports.items())
    return f"// {path}\nconst {names[path]} = (() => {{\n{imports}{module.code}\nreturn {{{exports}}};\n}})();\n"


def parse_module(path: str, text: str) -> JavaScriptModule:
    """Return a module. Raises ValueError for a form of import or export that is not known."""
    imports: list[tuple[str, str]] = []
    exports: dict[str, str] = {}

    def resolve_imported_path(imported: str) -> str:
        return os.path.normpath(os.path.join(os.path.dirname(path), imported)).replace(os.sep, "/")

    at = _skip_comments_and_spaces(text, 0)
    while (found := _IMPORT.match(text, at)) is not None:
        imports.append((resolve_imported_path(found["path"]), _declare_import(found)))
        at = _skip_comments_and_spaces(text, found.end())

    def replace_export_list(match: re.Match[str]) -> str:
        if match["path"] is None:
            exports.update({outside: inside for inside, outside in _parse_imported_names(match["names"])})
        else:  # names of another module, which are not known here
            hidden = {
                outside: f"$again{len(exports) + number}"
                for number, (_, outside) in enumerate(_parse_imported_names(match["names"]))
            }
            pairs = ", ".join(
                f"{inside}: {hidden[outside]}" for inside, outside in _parse_imported_names(match["names"])
            )
            imports.append((resolve_imported_path(match["path"]), f"{{{pairs}}}"))
            exports.update(hidden)
        return match["before"]

    def replace_exported_declaration(match: re.Match[str]) -> str:
        exports[match["name"]] = match["name"]
        return ""

    code = _DECLARED.sub(replace_exported_declaration, text[at:])
    while (left := _LIST.sub(replace_export_list, code)) != code:  # a line may have several
        code = left
    code, count = _DEFAULT.subn(f"const {_DEFAULT_NAME} = ", code)
    if count:
        exports["default"] = _DEFAULT_NAME
    if strange := re.search(r"^(?:import|export)\b.*", code, re.MULTILINE):
        raise ValueError(f"{path}: {strange[0][:100]}")
    return JavaScriptModule(imports, code, exports)


def _declare_import(match: re.Match[str]) -> str:
    """Return the pattern that a JavaScript `const` declares for an import: a name, or names in braces."""
    if match["all"] is not None:
        return str(match["all"])
    if match["default"] is not None:
        return f"{{default: {match['default']}}}"
    return "{" + ", ".join(f"{inside}: {outside}" for inside, outside in _parse_imported_names(match["names"])) + "}"


def _parse_imported_names(names: str) -> Iterator[tuple[str, str]]:
    """Yield (a, b) for each "a as b" of a list of names, and (a, a) for each "a"."""
    for name in filter(None, (each.strip() for each in names.split(","))):
        inside, _, outside = name.partition(" as ")
        yield inside.strip(), (outside or inside).strip()


def _skip_comments_and_spaces(text: str, position: int) -> int:
    """Return the position of the next character that is neither space nor comment."""
    found = _BLANK.match(text, position)
    return position if found is None else found.end()
