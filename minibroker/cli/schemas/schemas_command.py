"""`minibroker schemas`: list, show, register, check and delete the schemas of any registry with Confluent's API."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, BinaryIO, Final

import click

from minibroker.cli.schemas.registries import make_registry_options
from minibroker.cli.shared import (
    WholeHelpGroup,
    make_json_option,
    make_operation_error,
    print_rows,
)
from minibroker.registry.registry_client import RegistryClient, RequestFailed

TYPES: Final = {"json": "JSON", "proto": "PROTOBUF", "avsc": "AVRO"}  # by suffix
KINDS: Final = ("AVRO", "JSON", "PROTOBUF")
NAMES: Final = ("subject", "version", "id", "type")
ReferredSchema = tuple[str, str, int]


@click.group(cls=WholeHelpGroup)
def schemas() -> None:
    """List, show, register, check and delete schemas in any registry with Confluent's API.

    \b
    Example:
        minibroker schemas register users-value user.avsc
    """


def _parse_reference(text: str) -> ReferredSchema:
    """Parse NAME=SUBJECT:VERSION. Raises click.BadParameter."""
    name, equals, place = text.partition("=")
    subject, colon, version = place.rpartition(":")
    if not (equals and colon and name and subject and (version == "latest" or version.isdecimal())):
        raise click.BadParameter(f"{text!r} is not NAME=SUBJECT:VERSION")
    return name, subject, -1 if version == "latest" else int(version)


def _add_schema_options(command: Any) -> Any:
    """Add the arguments `subject` and `file`, and the options `--type` and `--reference`."""
    command = click.option("--reference", "references", metavar="NAME=SUBJECT:VERSION", type=_parse_reference,
                           multiple=True, help="What a name in it stands for; can be repeated.")(command)  # fmt: skip
    command = click.option("--type", "kind", type=click.Choice(KINDS, case_sensitive=False),
                           help="[default: by the file's name: .avsc, .json, .proto; else AVRO]")(command)  # fmt: skip
    command = click.argument("file", type=click.File("rb"))(command)
    return click.argument("subject")(command)


def _make_request_body(file: BinaryIO, kind: str | None, references: Sequence[ReferredSchema]) -> dict[str, Any]:
    """Return the request for a schema in a file. Raises click.ClickException for a file that is no text."""
    name = str(getattr(file, "name", "-"))
    try:
        text = file.read().decode()
    except UnicodeDecodeError:
        raise make_operation_error(f"{name} is not UTF-8") from None
    body: dict[str, Any] = {"schema": text, "schemaType": kind or TYPES.get(name.rpartition(".")[2], "AVRO")}
    if references:
        names = ("name", "subject", "version")
        body["references"] = [dict(zip(names, each, strict=True)) for each in references]
    return body


@schemas.command("list")
@click.option("--prefix", default=":*:", help="Only subjects that begin with this.")
@click.option("--deleted", is_flag=True, help="Deleted versions, too.")
@make_registry_options()
@make_json_option("Print a JSON array.")
def list_schemas(prefix: str, deleted: bool, registry: RegistryClient, as_json: bool) -> None:
    """List the versions of all subjects.

    \b
    Example:
        minibroker schemas list --prefix users
    """
    query = {"subjectPrefix": prefix, "deleted": str(deleted).lower()}
    listed = registry.fetch_list("schemas", query=query)
    if as_json:
        click.echo(json.dumps(listed))
        return
    rows = ({**{name: each[name] for name in NAMES[:3]}, "type": each.get("schemaType", "AVRO")} for each in listed)
    print_rows(list(rows), NAMES)


@schemas.command()
@click.argument("schema", metavar="SUBJECT|ID")
@click.option("--version", default="latest", show_default=True, help="The version of the subject.")
@make_registry_options()
@make_json_option("Print the whole answer: ids, type, references and text.")
def show(schema: str, version: str, registry: RegistryClient, as_json: bool) -> None:
    """Show a version of a subject, or the schema with an id.

    \b
    Example:
        minibroker schemas show users-value --version 2
    """
    path = ("schemas", "ids", schema) if schema.isdecimal() else ("subjects", schema, "versions", version)
    found = registry.send_request("GET", *path)
    click.echo(json.dumps(found) if as_json else _indent_json(found["schema"]))


def _indent_json(text: str) -> str:
    """Return JSON with indentation; other texts stay as they are."""
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except ValueError:
        return text


@schemas.command()
@_add_schema_options
@click.option("--normalize", is_flag=True, help="Store the schema without differences that have no meaning.")
@make_registry_options()
def register(
    subject: str, file: BinaryIO, kind: str | None, references: tuple[ReferredSchema, ...], normalize: bool,
    registry: RegistryClient,
) -> None:  # fmt: skip
    """Register the schema in a file, or on standard input (-), and print its id.

    \b
    Example:
        minibroker schemas register users-value user.avsc
    """
    query = {"normalize": str(normalize).lower()}
    body = _make_request_body(file, kind, references)
    click.echo(registry.send_request("POST", "subjects", subject, "versions", body=body, query=query)["id"])


@schemas.command()
@_add_schema_options
@click.option("--version", help="Compare with this version.  [default: those that the subject's level names]")
@make_registry_options()
def check(
    subject: str, file: BinaryIO, kind: str | None, references: tuple[ReferredSchema, ...], version: str | None,
    registry: RegistryClient,
) -> None:  # fmt: skip
    """Check whether a schema is compatible with its subject; status 1 and the reasons if it is not.

    \b
    Example:
        minibroker schemas check users-value user.avsc
    """
    place = () if version is None else (version,)
    body = _make_request_body(file, kind, references)
    path = ("compatibility", "subjects", subject, "versions", *place)
    verdict = registry.send_request("POST", *path, body=body, query={"verbose": "true"})
    if not verdict["is_compatible"]:
        raise make_operation_error(
            "not compatible: " + " ".join(", ".join(verdict.get("messages") or ["no reason is given"]).split())
        )
    click.echo("compatible")


@schemas.command()
@click.argument("subject")
@click.option("--version", help="Only this version.")
@click.option("--permanent", is_flag=True, help="For good, including what was deleted before.")
@make_registry_options()
def delete(subject: str, version: str | None, permanent: bool, registry: RegistryClient) -> None:
    """Delete a subject, or one version, and print what was deleted.

    \b
    Example:
        minibroker schemas delete users-value --permanent
    """
    path = ("subjects", subject) if version is None else ("subjects", subject, "versions", version)
    if permanent:
        _delete_softly_unless_deleted(registry, path)
    found = registry.send_request("DELETE", *path, query={"permanent": str(permanent).lower()})
    click.echo(" ".join(map(str, found if isinstance(found, list) else [found])))


def _delete_softly_unless_deleted(registry: RegistryClient, path: tuple[str, ...]) -> None:
    """Delete what is not deleted yet, as a registry wants it before a permanent deletion."""
    try:
        registry.send_request("DELETE", *path)
    except RequestFailed as error:
        if error.code not in (40404, 40406):
            raise
