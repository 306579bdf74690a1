"""The verbs of the kits, as the OpenAPI description of the control has them: names, arguments and answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

Schema = dict[str, Any]

# Names that are longer over HTTP than they are as methods of a broker.
NAMES: Final = {
    "add_faults": "add_fault",
    "expect_records": "expect",
    "fill_topics": "fill",
    "get_broker": "state",
    "get_registry": "registry_url",
    "kill_broker": "kill",
    "reset_broker": "reset",
    "restart_broker": "restart",
    "restore_snapshot": "restore",
    "secure_broker": "secure",
    "take_snapshot": "snapshot",
}
PREFIXES: Final = ("get_", "list_")
# Optional arguments that come before the options, by their place.
PLACED: Final = {
    "expect_records": ("count",),
    "expect_dead_letters": ("count",),
    "list_requests": ("api",),
    "wait_for_hits": ("hits",),
    "wait_for_requests": ("api", "count"),
}
# A method for each value of a parameter of the path, which the method does not have: its name, and what it does.
VARIANTS: Final = {
    "change_node": {
        "stop": ("stop_node", "Stop a node: queued answers are sent, and other nodes take over its partitions."),
        "kill": ("kill_node", "Kill a node: clients are disconnected, and other nodes take over its partitions."),
        "start": ("start_node", "Bring back a node that is stopped or killed, at its port."),
        "pause": ("pause_node", "Pause a node: it accepts requests and sends no answers."),
        "resume": ("resume_node", "Resume a paused node, which answers what arrived meanwhile."),
        "make-stale": ("make_stale", "Freeze the leaders in a node's metadata until `refresh`."),
        "refresh": ("refresh", "Let a stale node's metadata name the current leaders again."),
    },
    "add_acl": {
        "allow": ("allow", "Allow an operation to a user."),
        "deny": ("deny", "Deny an operation to a user, although it may be allowed, too."),
    },
}
# What descriptions say of HTTP, and what a method does instead.
IN_A_METHOD: Final = {"answer 408": "fail", "; answer once": "; return once", ", or a list.": ".", " with 400": ""}
SPAN: Final = ["10 s"]  # the example that every duration has


@dataclass
class Field:
    """An argument of a verb, or a field of a type. `default` is None if there is none."""

    name: str
    schema: Schema
    is_nullable: bool
    default: Any
    about: str

    @property
    def is_span(self) -> bool:
        """Whether it is a duration."""
        return self.schema.get("examples") == SPAN

    @property
    def zero_counts(self) -> bool:
        """Whether 0 or false is another value than none."""
        if self.schema.get("type") == "boolean":
            return self.default is not False
        return self.schema.get("type") == "integer" and self.default is None and self.schema.get("minimum", 0) == 0


@dataclass
class Operation:
    """A verb. `placed` arguments are given by place, `options` by name. `answer` is None for an empty answer.

    `unwrapped` is the only field of the answer, which is returned alone. A `whole` argument is the body itself.
    """

    name: str
    about: str
    method: str
    path: list[str | Field]
    placed: list[Field]
    options: list[Field]
    options_name: str
    answer: Schema | None
    unwrapped: str
    whole: Field | None


def field_of(name: str, schema: Schema) -> Field:
    """Return a field without the null of its schema."""
    kinds = schema.get("anyOf", [schema])
    others = [kind for kind in kinds if kind.get("type") != "null"]
    kind = others[0] if len(others) == 1 else {}
    return Field(name, kind, len(others) < len(kinds), schema.get("default"), schema.get("description", ""))


def fields_of(schema: Schema) -> list[Field]:
    """Return the fields of an object."""
    return [field_of(name, each) for name, each in schema["properties"].items()]


def ref_of(schema: Schema) -> str:
    """Return the name of the type that a schema refers to, or nothing."""
    return str(schema.get("$ref", "")).rpartition("/")[2]


class Description:
    """The verbs and the types of a control."""

    def __init__(self, openapi: Schema) -> None:
        self._types: dict[str, Schema] = openapi["components"]["schemas"]
        self.operations = [
            each
            for path, methods in openapi["paths"].items()
            for method, said in methods.items()
            for each in self._read(path, method.upper(), said)
        ]
        self.answers = {name: fields_of(self._types[name]) for name in self._shown()}
        self.given = {ref_of(each.whole.schema) for each in self.operations if each.whole} - {""}
        self.bodies = {name: fields_of(self._types[name]) for name in [*sorted(self.given), "SchemaReference"]}

    def type_of(self, name: str) -> Schema:
        """Return a type by its name."""
        return self._types[name]

    def _read(self, path: str, method: str, said: Schema) -> Iterator[Operation]:
        """Yield the verb, or its variants."""
        name: str = said["operationId"]
        shorter = name
        for prefix in PREFIXES:
            shorter = shorter.removeprefix(prefix)
        about = " ".join(said["description"].split())
        for words, own in IN_A_METHOD.items():
            about = about.replace(words, own)
        if name not in VARIANTS:
            yield self._operation(path, method, said, NAMES.get(name, shorter), about)
        for value, (own, meaning) in VARIANTS.get(name, {}).items():
            variable = path[path.rindex("{") :].partition("}")[0] + "}"
            yield self._operation(path.replace(variable, value), method, said, own, meaning)

    def _operation(self, path: str, method: str, said: Schema, name: str, about: str) -> Operation:
        parameters = {each["name"]: each for each in said.get("parameters", [])}
        parts: list[str | Field] = [
            field_of(part[1:-1], parameters[part[1:-1]]["schema"]) if part.startswith("{") else part
            for part in path.removeprefix("/v1/").split("/")
        ]
        placed = [part for part in parts if isinstance(part, Field)]
        whole, options_name = None, "".join(word.title() for word in name.split("_")) + "Query"
        given = [each for each in parameters.values() if each["in"] == "query"]
        fields = [(field_of(each["name"], each["schema"]), each["required"]) for each in given]
        if "requestBody" in said:
            body = field_of("", said["requestBody"]["content"]["application/json"]["schema"])
            body.schema = body.schema or {"$ref": "#/components/schemas/NewFault"}  # or a list of them
            options_name = ref_of(body.schema)
            if options_name in ("", "NewFault"):
                whole = Field("fault" if options_name else "configs", body.schema, False, None, "")
            else:
                shape = self._types[options_name]
                fields = [(each, each.name in shape.get("required", ())) for each in fields_of(shape)]
        own = PLACED.get(said["operationId"], ())
        placed += [each for each, is_required in fields if is_required or each.name in own]
        options = [each for each, _ in fields if each not in placed]
        answer, unwrapped = self._answer(said)
        return Operation(name, about, method, parts, placed, options, options_name, answer, unwrapped, whole)

    def _answer(self, said: Schema) -> tuple[Schema | None, str]:
        (good,) = (each for status, each in said["responses"].items() if status < "300")
        schema = good.get("content", {}).get("application/json", {}).get("schema")
        if schema is None:
            return None, ""
        shape = self._types[ref_of(schema)] if ref_of(schema) else {}
        if len(shape.get("properties", ())) != 1:
            return schema, ""
        ((name, only),) = shape["properties"].items()
        return only, name

    def _shown(self) -> list[str]:
        """Return the names of the types of answers, and of those that they contain."""
        found: dict[str, None] = {}
        waiting = [each.answer for each in self.operations if each.answer is not None]
        while waiting:
            schema = waiting.pop()
            inner = [schema.get("items"), schema.get("additionalProperties"), *schema.get("anyOf", ())]
            if (name := ref_of(schema)) and name not in found:
                found[name] = None
                inner += self._types[name].get("properties", {}).values()
            waiting += [each for each in inner if isinstance(each, dict)]
        return sorted(found)
