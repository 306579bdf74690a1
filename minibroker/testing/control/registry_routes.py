"""The paths of the HTTP control for the schema registry. Without a registry they answer 409."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter
from fastapi import Query as FromQuery
from pydantic import BaseModel, Field, model_validator

from minibroker.testing.broker import Broker
from minibroker.testing.control.http_errors import MISSING
from minibroker.testing.control.models import Asked, Query, Span

if TYPE_CHECKING:
    from minibroker.testing.registry_verbs import RegistryFault

Kind = Literal["AVRO", "JSON", "PROTOBUF"]
PATH = "Of requests, with `*` for anything: /subjects/*/versions."


class RegistryAddress(BaseModel):
    """Where the registry is; `url` is what clients need."""

    url: str


class Subjects(BaseModel):
    """The names of subjects."""

    subjects: list[str]


class SchemaReference(Asked):
    """A name in a schema, and the subject and the version (-1: the latest) that it stands for."""

    name: str
    subject: str
    version: int = -1


class NewSubjectSchema(Asked):
    """A schema to register, as a text or as JSON."""

    subject: str
    text: str | dict[str, Any] | list[Any] = Field(alias="schema")
    kind: Kind = "AVRO"
    references: list[SchemaReference] = Field(default_factory=list)


class SchemaId(BaseModel):
    """The id of a schema."""

    id: int


class SchemaAsked(Query):
    """A version of a subject, by default the latest."""

    subject: str
    version: int = -1


class SchemaText(BaseModel):
    """The text of a schema."""

    text: str = Field(alias="schema")


class CompatibilityLevel(Asked):
    """A level for a subject, or for all."""

    level: str
    subject: str | None = None


class RegistryRequestsAsked(Query):
    """Conditions for requests to the registry."""

    method: str | None = None
    path: str = Field(default="*", description=PATH)


class SeenRegistryRequest(BaseModel):
    """A request to the registry, and its answer."""

    method: str
    path: str
    body: str
    status: int
    answer: str
    duration_ms: float
    user: str | None
    after: int = Field(description="The number of the last request in the journal before it.")


class NewRegistryFault(Asked):
    """A fault: an error (`code`, an HTTP status or one of Confluent's codes), a `delay`, or an `unknown_id`."""

    code: int | None = None
    message: str = "a fault of the test"
    delay: Span | None = None
    unknown_id: int | None = None
    method: str | None = None
    path: str = Field(default="*", description=PATH)
    times: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def check_effect(self) -> NewRegistryFault:
        """Raise ValueError unless the fault has exactly one effect, and no condition that this does not have."""
        if [self.code, self.delay, self.unknown_id].count(None) != 2:
            raise ValueError("a fault has a code, a delay or an unknown_id")
        if self.unknown_id is not None and self.model_fields_set & {"method", "path", "message"}:
            raise ValueError("an unknown_id has no method, path and message")
        if self.delay is not None and "message" in self.model_fields_set:
            raise ValueError("a delay has no message")
        return self


class RegistryFaultState(BaseModel):
    """A fault, and how often it struck."""

    number: int
    hits: int


def registry_routes(broker: Broker, routes: APIRouter) -> None:
    """Add the paths for schemas and requests."""

    @routes.get("/registry")
    async def get_registry() -> RegistryAddress:
        """Return the address of the registry."""
        return RegistryAddress(url=broker.registry.url)

    @routes.get("/registry/subjects")
    async def list_subjects() -> Subjects:
        """Return the names of the subjects."""
        return Subjects(subjects=await broker.registry.asubjects())

    @routes.post("/registry/schemas")
    async def register_schema(asked: NewSubjectSchema) -> SchemaId:
        """Register a schema, unless the subject has it; return its id. An incompatible one is refused with 400."""
        references = [(each.name, each.subject, each.version) for each in asked.references]
        id = await broker.registry.aregister(asked.subject, asked.text, asked.kind, references=references)
        return SchemaId(id=id)

    @routes.get("/registry/schemas", responses=MISSING)
    async def get_schema(asked: Annotated[SchemaAsked, FromQuery()]) -> SchemaText:
        """Return the text of a version of a subject."""
        return SchemaText(schema=await broker.registry.aschema(asked.subject, asked.version))

    @routes.post("/registry/compatibility", status_code=204)
    async def set_compatibility(asked: CompatibilityLevel) -> None:
        """Set the level of a subject, or of all: "NONE", "BACKWARD", "FULL_TRANSITIVE", ..."""
        await broker.registry.aset_compatibility(asked.level, asked.subject)

    @routes.get("/registry/requests")
    async def list_registry_requests(
        asked: Annotated[RegistryRequestsAsked, FromQuery()],
    ) -> list[SeenRegistryRequest]:
        """Return the requests to the registry since the last reset, the newest 1000, oldest first."""
        return [SeenRegistryRequest(**vars(each)) for each in broker.registry.requests(asked.method, asked.path)]


def registry_fault_routes(broker: Broker, routes: APIRouter) -> None:
    """Add the paths for faults of the registry."""

    @routes.get("/registry/faults")
    async def list_registry_faults() -> list[RegistryFaultState]:
        """Return all faults of the registry, oldest first."""
        return [_state(each) for each in broker.registry.faults()]

    @routes.post("/registry/faults", status_code=201)
    async def add_registry_fault(asked: NewRegistryFault) -> RegistryFaultState:
        """Add a fault: {"code": 503, "times": 2}, {"delay": "2 s", "path": "/subjects/*"} or {"unknown_id": 1}."""
        registry = broker.registry
        method, path, times = asked.method, asked.path, asked.times
        if asked.unknown_id is not None:
            return _state(registry.forget(asked.unknown_id, times))
        if asked.delay is not None:
            return _state(registry.slow(asked.delay, method=method, path=path, times=times))
        assert asked.code is not None
        return _state(registry.fail(asked.code, asked.message, method=method, path=path, times=times))

    @routes.delete("/registry/faults", status_code=204)
    async def clear_registry_faults() -> None:
        """Remove all faults of the registry."""
        broker.registry.clear_faults()

    @routes.get("/registry/faults/{number}", responses=MISSING)
    async def get_registry_fault(number: int) -> RegistryFaultState:
        """Return how often the fault has struck."""
        return _state(_find_fault(broker, number))

    @routes.delete("/registry/faults/{number}", status_code=204, responses=MISSING)
    async def remove_registry_fault(number: int) -> None:
        """Remove the fault."""
        _find_fault(broker, number).remove()


def _find_fault(broker: Broker, number: int) -> RegistryFault:
    """Return a fault of the registry. Raises LookupError."""
    for fault in broker.registry.faults():
        if fault.number == number:
            return fault
    raise LookupError(f"the registry has no fault {number}")


def _state(fault: RegistryFault) -> RegistryFaultState:
    return RegistryFaultState(number=fault.number, hits=fault.hits)
