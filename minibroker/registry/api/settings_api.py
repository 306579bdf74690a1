"""The paths of Confluent's HTTP API for configs and modes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minibroker.registry.api.http_messages import Request
from minibroker.registry.api.registry_routes import add_route, get_subject_or_context
from minibroker.registry.state.registry import Registry
from minibroker.registry.state.registry_configs import find_config, find_mode, get_own_mode, parse_mode
from minibroker.registry.state.registry_errors import Errors


class SettingsApi:
    """Answers requests about configs and modes."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    @add_route("GET", "/config", "/config/{subject}")
    async def get_config(self, request: Request) -> Mapping[str, Any]:
        """Return the config of a subject, or of all."""
        state, subject = await self._registry.read_state(), get_subject_or_context(request)
        if subject is None or request.get_query_flag("defaultToGlobal"):
            return find_config(state, subject)
        if subject not in state.configs:
            raise Errors.NO_CONFIG.make_error(subject=subject)
        return state.configs[subject]

    @add_route("PUT", "/config", "/config/{subject}")
    async def set_config(self, request: Request) -> dict[str, Any]:
        """Change the config of a subject, or of all; return the request."""
        asked = request.parse_body()
        await self._registry.set_config(get_subject_or_context(request), asked)
        return asked

    @add_route("DELETE", "/config", "/config/{subject}")
    async def delete_config(self, request: Request) -> Mapping[str, Any]:
        """Remove the config of a subject, or of all; return what it was."""
        state, subject = await self._registry.read_state(), get_subject_or_context(request)
        before = state.configs.get(subject) if subject is not None else find_config(state, None)
        if before is None:
            raise Errors.SUBJECT_NOT_FOUND.make_error(subject=str(subject))
        await self._registry.set_config(subject, None)
        return before

    @add_route("GET", "/mode", "/mode/{subject}")
    async def get_mode(self, request: Request) -> dict[str, str]:
        """Return the mode of a subject, or of all."""
        state, subject = await self._registry.read_state(), get_subject_or_context(request)
        if subject is None or request.get_query_flag("defaultToGlobal"):
            return {"mode": find_mode(state, subject)}
        mode = get_own_mode(state, subject)
        if mode is None:
            raise Errors.NO_MODE.make_error(subject=subject)
        return {"mode": mode}

    @add_route("PUT", "/mode", "/mode/{subject}")
    async def set_mode(self, request: Request) -> dict[str, Any]:
        """Set the mode of a subject, or of all; return the request. Null removes it."""
        asked = request.parse_body()
        mode = None if "mode" in asked and asked["mode"] is None else parse_mode(asked.get("mode"))
        await self._registry.set_mode(get_subject_or_context(request), mode, force=request.get_query_flag("force"))
        return asked

    @add_route("DELETE", "/mode", "/mode/{subject}")
    async def delete_mode(self, request: Request) -> dict[str, str | None]:
        """Remove the mode of a subject or of all, or of a context and its subjects; return what it was."""
        state, subject, recursive = (
            await self._registry.read_state(),
            get_subject_or_context(request),
            request.get_query_flag("recursive"),
        )
        before = find_mode(state, None) if subject is None else get_own_mode(state, subject)
        if before is None and not recursive:
            raise Errors.SUBJECT_NOT_FOUND.make_error(subject=str(subject))
        await self._registry.delete_mode(subject, recursive=recursive)
        return {"mode": before}
