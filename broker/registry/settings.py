"""Compatibility levels and modes, of a subject and of all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from broker.registry import errors
from broker.registry.changing import Changer, commit, tokens
from broker.registry.levels import DEFAULT_LEVEL, LEVELS
from broker.registry.state import IMPORT, MODES, READONLY_OVERRIDE, READWRITE, SUBJECTS_MAX

if TYPE_CHECKING:
    from broker.registry.asking import Ask

LEVEL: Final = "compatibilityLevel"
_SETTABLE: Final = frozenset({"compatibility", LEVEL, "normalize"})


def _where(ask: Ask) -> str | None:
    """None: of all subjects."""
    return ask.subject if "subject" in ask.call.request.parameters else None


def _require(ask: Ask) -> str | None:
    """To change what is set there."""
    where = _where(ask)
    if where is None:
        ask.require_policymaker()
    else:
        ask.require("configure", where)
    return where


# Levels


async def get_config(ask: Ask) -> dict[str, Any]:
    where = _where(ask)
    everywhere = {LEVEL: DEFAULT_LEVEL, **ask.schemas.configs.get(None, {})}
    if where is None:
        return everywhere
    ask.require("read", where)
    own = ask.schemas.configs.get(where)
    if own is None and not ask.flag("defaultToGlobal"):
        raise errors.level_not_configured(where)
    return {**everywhere, **(own or {})} if ask.flag("defaultToGlobal") else dict(own or {})


async def put_config(changer: Changer, ask: Ask) -> dict[str, Any]:
    where = _require(ask)
    config = _config(ask.body())

    async def attempt() -> dict[str, Any]:
        _check_room(where, ask.schemas.configs)
        await commit(ask, [], {}, ["subject-config", where, config])
        return {("compatibility" if key == LEVEL else key): value for key, value in config.items()}

    return await changer.until_made(attempt)


def _config(body: dict[str, Any]) -> dict[str, Any]:
    unknown = {key for key, value in body.items() if value is not None} - _SETTABLE
    if unknown:
        shown = ", ".join(sorted(unknown))
        raise errors.RegistryError(errors.UNPROCESSABLE, f"not served in a config: {shown}")
    level = body.get("compatibility") or body.get(LEVEL)
    if not isinstance(level, str) or level.upper() not in LEVELS:
        raise errors.RegistryError(
            42203,
            "Invalid compatibility level. Valid values are none, backward, forward, full, "
            "backward_transitive, forward_transitive, and full_transitive",
        )
    config: dict[str, Any] = {LEVEL: level.upper()}
    if body.get("normalize") is not None:
        config["normalize"] = bool(body["normalize"])  # all schemas are, in any case
    return config


async def delete_config(changer: Changer, ask: Ask) -> dict[str, Any]:
    where = _require(ask)

    async def attempt() -> dict[str, Any]:
        await ask.call.up_to_date()
        config = ask.schemas.configs.get(where)
        if config is None and where is not None:
            raise errors.subject_not_found(where)
        if config is not None:
            await commit(ask, [], {}, ["-subject-config", where])
        return dict(config or {LEVEL: DEFAULT_LEVEL})

    return await changer.until_made(attempt)


# Modes


async def get_mode(ask: Ask) -> dict[str, Any]:
    where = _where(ask)
    everywhere = ask.schemas.modes.get(None, READWRITE)
    if where is None:
        return {"mode": everywhere}
    ask.require("read", where)
    overridden = everywhere == READONLY_OVERRIDE
    if where not in ask.schemas.modes and not overridden and not ask.flag("defaultToGlobal"):
        raise errors.mode_not_configured(where)
    return {"mode": ask.schemas.mode(where)}


async def put_mode(changer: Changer, ask: Ask) -> dict[str, Any]:
    where = _require(ask)
    mode = ask.body().get("mode")
    allowed = MODES if where is None else tuple(each for each in MODES if each != READONLY_OVERRIDE)
    if not isinstance(mode, str) or mode.upper() not in allowed:
        text = f"Invalid mode. Valid values are {', '.join(allowed)}"
        raise errors.RegistryError(42204, text)
    wanted = mode.upper()

    async def attempt() -> dict[str, Any]:
        await ask.call.up_to_date()
        touched = [] if where is None else [where]
        seen = tokens(ask, touched)
        _check_room(where, ask.schemas.modes)
        if wanted == IMPORT and not ask.flag("force"):
            _check_empty(ask, where)
        await commit(ask, touched, seen, ["subject-mode", where, wanted])
        return {"mode": wanted}

    return await changer.until_made(attempt)


def _check_empty(ask: Ask, where: str | None) -> None:
    """What is imported brings its ids and versions; they must not meet others."""
    names = ask.schemas.subjects if where is None else [where]
    if any(ask.schemas.versions(name, deleted=True) for name in names):
        raise errors.not_permitted("Cannot import since found existing subjects")


async def delete_mode(changer: Changer, ask: Ask) -> dict[str, Any]:
    where = _require(ask)

    async def attempt() -> dict[str, Any]:
        await ask.call.up_to_date()
        mode = ask.schemas.modes.get(where)
        if mode is None and where is not None:
            raise errors.subject_not_found(where)
        if mode is not None:
            await commit(ask, [], {}, ["-subject-mode", where])
        return {"mode": mode or READWRITE}

    return await changer.until_made(attempt)


def _check_room(where: str | None, settings: dict[str | None, Any]) -> None:
    """A subject may have settings before it has a schema."""
    if where not in settings and len(settings) > SUBJECTS_MAX:
        raise errors.not_permitted(f"{SUBJECTS_MAX} subjects have settings already")
