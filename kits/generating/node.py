"""The verbs in JavaScript, and their types in TypeScript: names are in camel case, maps stay as they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kits.generating.operations import Description, Field, Operation, Schema, ref_of
from kits.generating.texts import NOTICE, camel, inside

SIMPLE = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean"}


def node_files(description: Description) -> dict[str, str]:
    """Return the generated files by their names."""
    return {"verbs.js": "\n".join(_script(description)), "verbs.d.ts": "\n".join(_types(description))}


def _script(description: Description) -> Iterator[str]:
    maps = sorted(camel(each.name) for fields in description.answers.values() for each in fields if _is_map(each))
    yield from (f"// {NOTICE}", "", "// Fields of answers whose own fields have names of a test's.")
    names = ", ".join(f"'{name}'" for name in dict.fromkeys(maps))
    yield f"export const MAPS = new Set([{names}])"
    yield from ("", "export class Verbs {")
    for each in description.operations:
        yield from _method(each)
    yield from ("}", "")


def _is_map(field: Field) -> bool:
    return field.schema.get("type") == "object" and not ref_of(field.schema)


def _method(operation: Operation) -> Iterator[str]:
    parts = [f"'{each}'" if isinstance(each, str) else camel(each.name) for each in operation.path]
    in_path = {each.name for each in operation.path if isinstance(each, Field)}
    placed = [camel(each.name) for each in operation.placed if each.name not in in_path]
    names = [camel(each.name) for each in operation.placed]
    if operation.whole is not None:
        names.append(operation.whole.name)
        fields = operation.whole.name
    else:
        names += ["options"] if operation.options else []
        fields = ", ".join([*placed, *(["...options"] if operation.options else [])])
        fields = f"{{ {fields} }}" if fields else "undefined"
    is_shape = "$ref" in str(operation.answer)
    rest = (
        f", '{operation.unwrapped}'" if operation.unwrapped else ", null" if operation.answer and not is_shape else ""
    )
    is_map = operation.whole is not None and not ref_of(operation.whole.schema)
    verb = "_send" if is_map else "_ask"
    yield f"  {'async ' * (operation.name == 'add_fault')}{camel(operation.name)}({', '.join(names)}) {{"
    asked = f"this.{verb}('{operation.method}', [{', '.join(parts)}], {fields}{rest})"
    yield f"    return {f'(await {asked})[0]' if operation.name == 'add_fault' else asked}"
    yield from ("  }", "")


def _types(description: Description) -> Iterator[str]:
    yield from (f"// {NOTICE}", "", "/** Milliseconds, or a text with a unit: `'8 days'`, `'1.5 s'`, `'200 ms'`. */")
    yield from ("export type Duration = number | string", "")
    for name, fields in description.answers.items():
        yield from _interface(name, fields, str(description.type_of(name).get("description", "")), optional=False)
    seen = set(description.bodies)
    for name, fields in description.bodies.items():
        yield from _interface(name, fields, str(description.type_of(name)["description"]), optional=True)
    for each in description.operations:
        if each.options and each.options_name not in seen:
            seen.add(each.options_name)
            yield from _interface(each.options_name, each.options, "", optional=True)
    yield from (
        "/** What a test can ask a broker for. Each rejects with a `MinibrokerError`. */",
        "export class Verbs {",
    )
    for each in description.operations:
        yield f"  /** {inside(each.about)} */"
        yield f"  {camel(each.name)}({', '.join(_parameters(each))}): Promise<{_returned(each)}>"
    yield from ("}", "")


def _interface(name: str, fields: Sequence[Field], about: str, *, optional: bool) -> Iterator[str]:
    if about:
        yield f"/** {inside(about)} */"
    yield f"export interface {name} {{"
    for each in fields:
        kind = "Duration" if each.is_span else _type(each.schema)
        if each.about and not each.is_span:
            yield f"  /** {inside(each.about)} */"
        is_null = each.is_nullable and not optional
        yield f"  {camel(each.name)}{'?' * optional}: {kind}{' | null' * is_null}"
    yield from ("}", "")


def _type(schema: Schema) -> str:
    if name := ref_of(schema):
        return name
    if "prefixItems" in schema:
        return f"[{', '.join(map(_type, schema['prefixItems']))}]"
    if "enum" in schema:
        return " | ".join(f"'{each}'" for each in schema["enum"])
    if schema.get("type") == "array":
        return f"Array<{_type(schema.get('items', {}))}>"
    if schema.get("type") == "object":
        return f"{{ [name: string]: {_type(schema.get('additionalProperties', {}))} }}"
    if "anyOf" in schema:
        return " | ".join(map(_type, schema["anyOf"]))
    return {"null": "null", **SIMPLE}.get(schema.get("type", ""), "any")


def _parameters(operation: Operation) -> Iterable[str]:
    for each in operation.placed:
        is_optional = each.default is not None or (each.is_nullable and each.name == "api")
        kind = "Duration" if each.is_span else _type(each.schema)
        is_null = each.is_nullable and not is_optional
        yield f"{camel(each.name)}{'?' * is_optional}: {kind}{' | null' * is_null}"
    if operation.whole is not None:
        yield f"{operation.whole.name}: {_type(operation.whole.schema)}"
    if operation.options:
        yield f"options?: {operation.options_name}"


def _returned(operation: Operation) -> str:
    if operation.answer is None:
        return "void"
    kind = _type(operation.answer)
    return kind.removeprefix("Array<").removesuffix(">") if operation.name == "add_fault" else kind
