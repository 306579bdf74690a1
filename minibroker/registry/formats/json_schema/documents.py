"""Finds what a `$ref` refers to: in its own document, or in one that was registered. Nothing is ever fetched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote, urljoin

from minibroker.registry.formats.json_schema.text import read_json
from minibroker.registry.formats.schema import InvalidSchema

MAXIMUM_REFERENCES: Final = 1000  # schemas that one may refer to, directly or not
MAXIMUM_IDENTIFIER_CHARACTERS: Final = 16 << 20  # of all identifiers and references, each with its base
ROOT: Final = "http://schema.invalid/"  # the base of a document without an id of its own


class SchemaDocuments:
    """A schema and those that it refers to, and where in them each identifier stands.

    `base` is by object identity: no object of these documents goes away while this is used.
    """

    def __init__(self, root: Any, references: Mapping[str, str], id_keyword: str) -> None:
        """Read the referenced documents, and find all identifiers. Raises InvalidSchema."""
        if len(references) > MAXIMUM_REFERENCES:
            raise InvalidSchema(f"the schema has more than {MAXIMUM_REFERENCES} references")
        self._id_keyword = id_keyword
        self._characters = 0
        self._base: dict[int, str] = {}
        self._places: dict[str, Any] = {}
        root_base = self._index_document(root, ROOT)
        for name, text in references.items():
            document = read_json(text)
            # A reference is by its name, relative to the id of the document, or by the id of what it refers to.
            self._index_document(document, self._join_reference_to_base(ROOT, name))
            for uri in (self._join_reference_to_base(root_base, name), self._join_reference_to_base(ROOT, name), name):
                self._places.setdefault(uri, document)

    def resolve_reference(self, reference: str, source: Any) -> Any:
        """Return what a reference in `source`, an object of these documents, refers to. Raises InvalidSchema."""
        uri = self._join_reference_to_base(self._base.get(id(source), ROOT), reference)
        address, _, fragment = uri.partition("#")
        if uri in self._places:  # a name within a document
            return self._places[uri]
        document = self._places.get(address, self._places.get(reference.partition("#")[0]))
        if document is None:
            raise InvalidSchema(f"could not resolve the reference {reference!r}: no schema of that name is referenced")
        return _follow_pointer(document, unquote(fragment), reference)

    def _join_reference_to_base(self, base: str, reference: str) -> str:
        """Return a reference relative to a base; `urljoin` knows no fragments of addresses such as "urn:x".

        Raises InvalidSchema if all of them together are too long: a long base is in each.
        """
        address = base.partition("#")[0]
        self._characters += len(address) + len(reference)
        if self._characters > MAXIMUM_IDENTIFIER_CHARACTERS:
            raise InvalidSchema("the schema has too many long identifiers and references")
        return address + reference if reference.startswith("#") else urljoin(address, reference)

    def _index_document(self, document: Any, base: str) -> str:
        """Note the bases and identifiers of a document; return the base of its root."""
        pending = [(document, base)]
        root_base = ""
        while pending:
            value, base = pending.pop()
            if isinstance(value, dict):
                base = self._index_identifiers(value, base)
                pending += [(child, base) for child in value.values() if isinstance(child, dict | list)]
            elif isinstance(value, list):
                pending += [(child, base) for child in value if isinstance(child, dict | list)]
            root_base = root_base or base
        self._places.setdefault(root_base.partition("#")[0], document)
        return root_base

    def _index_identifiers(self, value: dict[str, Any], base: str) -> str:
        """Note the identifiers of an object; return the base of what is in it."""
        own = value.get(self._id_keyword)
        if isinstance(own, str) and own:
            uri = self._join_reference_to_base(base, own)
            self._places.setdefault(uri.removesuffix("#"), value)
            base = base if own.startswith("#") else uri
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(anchor := value.get(keyword), str):
                self._places.setdefault(self._join_reference_to_base(base, f"#{anchor}"), value)
        self._base[id(value)] = base
        return base


def _follow_pointer(document: Any, pointer: str, reference: str) -> Any:
    """Return what a JSON pointer finds in a document. Raises InvalidSchema."""
    if not pointer:
        return document
    value = document
    for step in pointer.removeprefix("/").split("/") if pointer.startswith("/") else [pointer]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and name.isascii() and name.isdecimal() and int(name[:9]) < len(value):
            value = value[int(name[:9])]
        else:
            raise InvalidSchema(f"could not resolve the reference {reference!r}: there is no {name!r}")
    return value
