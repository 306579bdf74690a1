"""The verbs in Go: a method for each, and a struct for its options, of which those that are zero are not sent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kits.generating.operations import Description, Field, Operation, Schema, ref_of
from kits.generating.texts import NOTICE, comment, lowered

INITIALISMS = {"id", "url", "api", "ip", "jwks"}
SIMPLE = {"string": "string", "integer": "int", "number": "float64", "boolean": "bool"}
KEYWORDS = {"type": "kind"}


def go_files(description: Description) -> dict[str, str]:
    """Return the generated files by their names."""
    lines = [f"// {NOTICE}", "", "package minibroker", "", 'import "time"', ""]
    for name, fields in description.answers.items():
        lines += _answer(name, fields, str(description.type_of(name).get("description", "")))
    for name, fields in description.bodies.items():
        lines += _options(name, fields, str(description.type_of(name)["description"]))
    seen: set[str] = set()
    for each in description.operations:
        if each.options and each.options_name not in seen:
            seen.add(each.options_name)
            about = f"What {_exported(each.name)} takes, where it is not to be as usual."
            lines += _options(each.options_name, each.options, about)
        lines += _method(each)
    return {"verbs.go": "\n".join(lines)}


def _exported(name: str) -> str:
    return "".join(word.upper() if word in INITIALISMS else word.capitalize() for word in name.split("_"))


def _local(name: str) -> str:
    first, *others = name.split("_")
    return KEYWORDS.get(name, first + _exported("_".join(others)))


def _type(schema: Schema) -> str:
    if name := ref_of(schema):
        return name
    if "prefixItems" in schema:
        return f"[{len(schema['prefixItems'])}]string"
    if schema.get("type") == "array":
        return f"[]{_type(schema['items'])}"
    if schema.get("type") == "object":
        return f"map[string]{_type(schema.get('additionalProperties', {}))}"
    others = [each for each in schema.get("anyOf", ()) if each.get("type") != "null"]
    if len(others) == 1 and len(others) < len(schema["anyOf"]):
        inner = _type(others[0])
        return inner if inner == "string" or inner.startswith(("map", "[")) else f"*{inner}"
    return SIMPLE.get(schema.get("type", ""), "any")


def _answer(name: str, fields: Sequence[Field], about: str) -> Iterator[str]:
    """Yield a struct for what is read. The bytes of records are exact, and there is no second text of them."""
    names, rows = {each.name for each in fields}, []
    yield from comment(f"{name} is {lowered(about)}" if about else f"{name} is an answer.", "// ")
    yield f"type {name} struct {{"
    for each in fields:
        if f"{each.name}_hex" in names:
            continue
        own, kind = each.name, _type(each.schema)
        if each.name.endswith("_hex"):
            own, kind = each.name.removesuffix("_hex"), "Bytes"
        elif each.is_nullable and kind not in ("string", "float64") and not kind.startswith(("map", "[")):
            kind = f"*{kind}"
        rows.append((_exported(own), kind, f'`json:"{each.name}"`'))
    yield from (*_aligned(rows), "}", "")


def _aligned(rows: Sequence[tuple[str, str, str]]) -> Iterator[str]:
    """Yield fields in columns, as gofmt wants them."""
    names, kinds = (max((len(row[at]) for row in rows), default=0) for at in (0, 1))
    for name, kind, tag in rows:
        yield f"\t{name.ljust(names)} {kind.ljust(kinds)} {tag}"


def _options(name: str, fields: Iterable[Field], about: str) -> Iterator[str]:
    yield from comment(f"{name} is {lowered(about)}", "// ")
    yield f"type {name} struct {{"
    rows: list[tuple[str, str, str]] = []
    for each in fields:
        kind = "time.Duration" if each.is_span else _type(each.schema)
        if each.name == "values_hex":
            kind = "[]*string"  # with nil for a record without a value
        if each.about and not (each.is_span and "bare number" in each.about):
            yield from _aligned(rows)
            yield from comment(each.about.replace("`", ""), "\t// ")
            rows = []
        rows.append((_exported(each.name), ("*" if each.zero_counts else "") + kind, f'`json:"{each.name}"`'))
    yield from (*_aligned(rows), "}", "")


def _parameters(operation: Operation) -> Iterator[str]:
    for each in operation.placed:
        kind = "time.Duration" if each.is_span else _type(each.schema)
        is_missing = each.is_nullable and kind == "int"
        yield f"{_local(each.name)} {'*' * is_missing}{kind}"
    if operation.whole is not None:
        yield f"{operation.whole.name} {_type(operation.whole.schema)}"
    if operation.options:
        yield f"options ...{operation.options_name}"


def _method(operation: Operation) -> Iterator[str]:
    name = _exported(operation.name)
    is_one = operation.name == "add_fault"
    kind = "" if operation.answer is None else _type(operation.answer)
    returned = kind.removeprefix("[]") if is_one else kind
    yield from comment(f"{name}: {lowered(operation.about)}", "// ")
    yield f"func (b *Broker) {name}({', '.join(_parameters(operation))}) {returned} {{".replace(")  {", ") {")
    yield "\tb.t.Helper()"
    answer = "nil"
    if kind:
        field = f'struct {{\n\t\tOnly {kind} `json:"{operation.unwrapped}"`\n\t}}' if operation.unwrapped else kind
        yield f"\tvar answer {field}"
        answer = "&answer"
    yield f"\tb.ask({', '.join([*_request(operation), answer])})"
    if kind:
        yield f"\treturn answer{'.Only' if operation.unwrapped else ''}{'[0]' if is_one else ''}"
    yield from ("}", "")


def _request(operation: Operation) -> Iterator[str]:
    """Yield the method, the path and the body."""
    yield f'"{operation.method}"'
    parts = [f'"{each}"' if isinstance(each, str) else _local(each.name) for each in operation.path]
    yield f"path({', '.join(parts)})"
    in_path = {each.name for each in operation.path if isinstance(each, Field)}
    placed = [each for each in operation.placed if each.name not in in_path]
    if operation.whole is not None:
        name = operation.whole.name
        yield name if _type(operation.whole.schema).startswith("map") else f"given([]NewFault{{{name}}})"
    elif placed or operation.options:
        named = [word for each in placed for word in (f'"{each.name}"', _local(each.name))]
        yield f"given({', '.join(['options' if operation.options else '[]struct{}{}', *named])})"
    else:
        yield "nil"
