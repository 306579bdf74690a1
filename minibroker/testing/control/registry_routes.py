"""The paths of the HTTP control for the schema registry. Without a registry they answer 409."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta

from minibroker.testing.broker import Broker
from minibroker.testing.control.http_errors import MISSING
from minibroker.testing.control.models import PATH, RequestBody, Shown
from minibroker.web.reading import TimeSpan
from minibroker.web.routes import Routes

if TYPE_CHECKING:
    from minibroker.testing.embedded.registry_verbs import RegistryFault

Kind = Literal["AVRO", "JSON", "PROTOBUF"]


class SchemaReference(RequestBody):
    """A name in a schema, and the subject and the version (-1: the latest) that it stands for."""

    name: str
    subject: str
    version: int = -1


class SeenRegistryRequest(Shown):
    """A request to the registry, and its answer.

    `after` is the number of the last request in the journal before it.
    """

    method: str
    path: str
    body: str
    status: int
    answer: str
    duration_ms: float
    user: str | None
    after: int


MESSAGE = "a fault of the test"


class NewRegistryFault(RequestBody):
    """A fault: an error (`code`, an HTTP status or one of Confluent's codes), a `delay`, or an `unknown_id`."""

    code: int | None = None
    message: str = MESSAGE
    delay: TimeSpan | None = None
    unknown_id: int | None = None
    method: str | None = None
    path: Annotated[str, Meta(description=PATH)] = "*"
    times: Annotated[int, Meta(ge=1)] | None = None

    def __post_init__(self) -> None:
        """Raise ValueError unless the fault has exactly one effect, and no condition that this does not have."""
        if [self.code, self.delay, self.unknown_id].count(None) != 2:
            raise ValueError("a fault has a code, a delay or an unknown_id")
        if self.unknown_id is not None and (self.method, self.path, self.message) != (None, "*", MESSAGE):
            raise ValueError("an unknown_id has no method, path and message")
        if self.delay is not None and self.message != MESSAGE:
            raise ValueError("a delay has no message")


class RegistryFaultState(Shown):
    """A fault, and how often it struck."""

    number: int
    hits: int


def add_registry_routes(broker: Broker, routes: Routes) -> None:
    """Add the routes that register and read schemas, and list the registry's requests."""

    @routes.get("/registry", answer="RegistryAddress.url")
    def get_registry() -> str:
        """Return the address of the registry."""
        return broker.registry.url

    @routes.get("/registry/subjects", answer="Subjects.subjects")
    async def list_subjects() -> list[str]:
        """Return the names of the subjects."""
        return await broker.registry.asubjects()

    @routes.post("/registry/schemas", body="NewSubjectSchema", answer="SchemaId.id")
    async def register_schema(
        subject: str,
        schema: str | dict[str, Any] | list[Any],
        kind: Kind = "AVRO",
        references: tuple[SchemaReference, ...] = (),
    ) -> int:
        """Register a schema, unless the subject has it; return its id. An incompatible one is refused with 400."""
        named = [(each.name, each.subject, each.version) for each in references]
        return await broker.registry.aregister(subject, schema, kind, references=named)

    @routes.get("/registry/schemas", answer="SchemaText.schema", errors=MISSING)
    async def get_schema(subject: str, version: int = -1) -> str:
        """Return the text of a version of a subject, by default the latest."""
        return await broker.registry.aschema(subject, version)

    @routes.post("/registry/compatibility", body="CompatibilityLevel")
    async def set_compatibility(level: str, subject: str | None = None) -> None:
        """Set the level of a subject, or of all: "NONE", "BACKWARD", "FULL_TRANSITIVE", ..."""
        await broker.registry.aset_compatibility(level, subject)

    @routes.get("/registry/requests", answer=list[SeenRegistryRequest])
    def list_registry_requests(method: str | None = None, path: str = "*") -> Any:
        """Return the requests to the registry since the last reset, the newest 1000, oldest first."""
        return broker.registry.requests(method, path)


def add_registry_fault_routes(broker: Broker, routes: Routes) -> None:
    """Add the routes that add, list and remove faults of the registry."""

    def find_fault(number: int) -> RegistryFault:
        find_fault = next((each for each in broker.registry.faults() if each.number == number), None)
        if find_fault is None:
            raise LookupError(f"the registry has no fault {number}")
        return find_fault

    @routes.get("/registry/faults", answer=list[RegistryFaultState])
    def list_registry_faults() -> Any:
        """Return all faults of the registry, oldest first."""
        return broker.registry.faults()

    @routes.post("/registry/faults", status=201, answer=RegistryFaultState)
    def add_registry_fault(asked: NewRegistryFault) -> Any:
        """Add a fault: {"code": 503, "times": 2}, {"delay": "2 s", "path": "/subjects/*"} or {"unknown_id": 1}."""
        registry = broker.registry
        method, path, times = asked.method, asked.path, asked.times
        if asked.unknown_id is not None:
            return registry.forget(asked.unknown_id, times)
        if asked.delay is not None:
            return registry.slow(asked.delay, method=method, path=path, times=times)
        assert asked.code is not None
        return registry.fail(asked.code, asked.message, method=method, path=path, times=times)

    @routes.delete("/registry/faults")
    def clear_registry_faults() -> None:
        """Remove all faults of the registry."""
        broker.registry.clear_faults()

    @routes.get("/registry/faults/{number}", answer=RegistryFaultState, errors=MISSING)
    def get_registry_fault(number: int) -> Any:
        """Return how often the fault has struck."""
        return find_fault(number)

    @routes.delete("/registry/faults/{number}", errors=MISSING)
    def remove_registry_fault(number: int) -> None:
        """Remove the fault."""
        find_fault(number).remove()
