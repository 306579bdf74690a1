"""The verbs in Java: overloads of a method for each, whose options a function sets, and a record for each answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kits.generating.operations import Description, Field, Operation, Schema, ref_of
from kits.generating.texts import NOTICE, camel, inside

SIMPLE = {"string": "String", "integer": "long", "number": "double", "boolean": "boolean"}
BOXED = {"long": "Long", "double": "Double", "boolean": "Boolean"}
TYPES = {"Record": "SeenRecord"}  # java.lang has a Record
HEAD = f"""\
// {NOTICE}
package minibroker;

import com.fasterxml.jackson.core.type.TypeReference;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;

/** What a test can ask a broker for. Each method throws a {{@link MinibrokerError}} if it fails. */
public abstract class Verbs {{
    abstract <T> T ask(String method, List<?> path, Map<String, ?> fields, TypeReference<T> type, String only);
"""


def java_files(description: Description) -> dict[str, str]:
    """Return the generated files by their names."""
    lines = [HEAD]
    for each in description.operations:
        lines += _methods(each)
    for name, fields in description.answers.items():
        lines += _record(name, fields, str(description.type_of(name).get("description", name)))
    for name, fields in description.bodies.items():
        lines += _options(name, fields, str(description.type_of(name)["description"]))
    seen = set(description.bodies)
    for each in description.operations:
        if each.options and each.options_name not in seen:
            seen.add(each.options_name)
            lines += _options(each.options_name, each.options, f"What {{@code {camel(each.name)}}} takes.")
    return {"src/main/java/minibroker/Verbs.java": "\n".join([*lines, "}", ""])}


def _type(schema: Schema, *, boxed: bool = False) -> str:
    if name := ref_of(schema):
        return TYPES.get(name, name)
    if "prefixItems" in schema:
        return "List<String>"
    if schema.get("type") == "array":
        return f"List<{_type(schema.get('items', {}), boxed=True)}>"
    if schema.get("type") == "object":
        return f"Map<String, {_type(schema.get('additionalProperties', {}), boxed=True)}>"
    others = [each for each in schema.get("anyOf", ()) if each.get("type") != "null"]
    if len(others) == 1:
        return _type(others[0], boxed=True)
    kind = SIMPLE.get(schema.get("type", ""), "Object")
    return BOXED.get(kind, kind) if boxed else kind


def _kind(field: Field, *, is_given: bool = False) -> str:
    if field.is_span:
        return "Duration"
    return _type(field.schema, boxed=field.is_nullable and not is_given)


def _methods(operation: Operation) -> Iterator[str]:
    """Yield the method without what is optional, then with more of it."""
    optional = [each for each in operation.placed if _is_optional(each)]
    required = [each for each in operation.placed if each not in optional]
    if operation.whole is not None:
        yield from _method(operation, required, has_options=bool(ref_of(operation.whole.schema)))
        return
    for count in range(len(optional) + 1):
        yield from _method(operation, required + optional[:count], has_options=False)
    if operation.options:
        yield from _method(operation, operation.placed, has_options=True)


def _is_optional(field: Field) -> bool:
    return field.default is not None or field.name == "api"


def _method(operation: Operation, placed: Sequence[Field], *, has_options: bool) -> Iterator[str]:
    whole, is_one = operation.whole, operation.name == "add_fault"
    parameters = [f"{_kind(each, is_given=_is_optional(each))} {camel(each.name)}" for each in placed]
    if whole is not None and not has_options:
        parameters.append(f"{_type(whole.schema)} {whole.name}")
    options_name = operation.options_name
    if has_options:
        parameters.append(f"Consumer<{options_name}> options")
    kind = "Void" if operation.answer is None else _type(operation.answer, boxed=True)
    returned = "void" if operation.answer is None else _type(operation.answer)
    if is_one:
        returned = returned.removeprefix("List<").removesuffix(">")
    yield f"    /** {inside(operation.about)} */"
    yield f"    public {returned} {camel(operation.name)}({', '.join(parameters)}) {{"
    in_path = {each.name for each in operation.path if isinstance(each, Field)}
    fields = "null"
    if whole is not None and not has_options:
        fields = whole.name
    elif has_options or placed[len(in_path) :]:
        fields = "fields.map()"
        kinds = (options_name, options_name) if has_options else ("Given<?>", "Given<>")
        yield f"        {kinds[0]} fields = new {kinds[1]}();"
        if has_options:
            yield "        options.accept(fields);"
        for each in placed:
            if each.name not in in_path:
                yield f'        fields.with("{each.name}", {camel(each.name)});'
    path = ", ".join(f'"{each}"' if isinstance(each, str) else camel(each.name) for each in operation.path)
    only = f'"{operation.unwrapped}"' if operation.unwrapped else "null"
    asked = f'ask("{operation.method}", List.of({path}), {fields}, new TypeReference<{kind}>() {{}}, {only})'
    yield f"        {'' if operation.answer is None else 'return '}{asked}{'.get(0)' * is_one};"
    yield from ("    }", "")


def _record(name: str, fields: Sequence[Field], about: str) -> Iterator[str]:
    yield f"    /** {inside(about)} */"
    yield f"    public record {TYPES.get(name, name)}("
    for each in fields:
        end = ") {}" if each is fields[-1] else ","
        yield f"        {_kind(each)} {camel(each.name)}{end}"
    yield ""


def _options(name: str, fields: Sequence[Field], about: str) -> Iterator[str]:
    yield f"    /** {inside(about)} */"
    yield f"    public static final class {name} extends Given<{name}> {{"
    for each in fields:
        if each.about and not (each.is_span and "bare number" in each.about):
            yield f"        /** {inside(each.about)} */"
        yield f"        public {name} {camel(each.name)}({_kind(each, is_given=True)} value) {{"
        yield f'            return with("{each.name}", value);'
        yield "        }"
    yield from ("    }", "")
