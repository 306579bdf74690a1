"""The modules of the page become one script, each after those that it imports."""

from __future__ import annotations

import re

import pytest

from minibroker.explorer.bundling import bundle_modules, parse_module
from minibroker.explorer.explorer_routes import FIRST_MODULE, FOLDER
from tests.cases import for_each

MODULES = {path.relative_to(FOLDER).as_posix(): path.read_text("utf-8") for path in sorted(FOLDER.rglob("*.js"))}


def body(text: str) -> list[str]:
    return [line for line in text.splitlines() if line and not line.startswith("//")]


def test_a_bundled_module_is_a_function_that_returns_its_exports() -> None:
    texts = {
        "a.js": '// A.\n\nimport { one, two as to } from "./b/b.js";\nimport * as all from "./b/b.js";\none(to);\n',
        "b/b.js": "export const one = 1;\nexport async function two() {}\nconst three = 3;\nexport { three };\n",
    }
    assert body(bundle_modules("a.js", texts.__getitem__)) == [
        *("const $module0 = (() => {", "const one = 1;", "async function two() {}", "const three = 3;"),
        *("return {one: one, two: two, three: three};", "})();"),
        *("const $module1 = (() => {", "const {one: one, two: to} = $module0;", "const all = $module0;"),
        *("one(to);", "return {};", "})();"),
    ]


@pytest.mark.parametrize(
    ("text", "imports", "code", "exports"),
    [
        ('import{a as b}from"./c.js";b()', [("v/c.js", "{a: b}")], "b()", {}),
        ("var x=1;export{x as y,x as $};", [], "var x=1;", {"y": "x", "$": "x"}),
        ("export default function(a){}", [], "const $default = function(a){}", {"default": "$default"}),
        ('import a from "../a.js";\n', [("a.js", "{default: a}")], "", {}),
        (
            'export{a,b as c}from"./d.js";f()',
            [("v/d.js", "{a: $again0, b: $again1}")],
            "f()",
            {"a": "$again0", "c": "$again1"},
        ),
    ],
)
def test_the_bundler_supports_each_form_of_import_and_export_in_use(
    text: str, imports: list[tuple[str, str]], code: str, exports: dict[str, str]
) -> None:
    assert parse_module("v/m.js", text) == (imports, code, exports)


@pytest.mark.parametrize("text", ['export * from "./b.js";', 'let a;\nimport "./b.js";', "export let a = 1;"])
def test_an_unsupported_form_of_import_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"m\.js: (export|import)"):
        parse_module("m.js", text)


def test_an_import_cycle_is_rejected() -> None:
    texts = {"a.js": 'import { b } from "./b.js";', "b.js": 'import { a } from "./a.js";'}
    with pytest.raises(ValueError, match="a.js imports b.js imports a.js"):
        bundle_modules("a.js", texts.__getitem__)


def test_the_bundle_contains_all_modules() -> None:
    text = bundle_modules(FIRST_MODULE, MODULES.__getitem__)
    assert sorted(re.findall(r"^// (\S+\.js)\nconst \$module", text, re.MULTILINE)) == sorted(MODULES)
    assert re.findall(r"^(?:import|export)\b.*", text, re.MULTILINE) == []


@for_each("path", MODULES)
def test_a_module_imports_only_existing_exports(path: str) -> None:
    for imported, declared in parse_module(path, MODULES[path]).imports:
        names = re.findall(r"([\w$]+):", declared)
        assert set(names) <= parse_module(imported, MODULES[imported]).exports.keys()
