"""Users, vhosts and permissions within definitions, in RabbitMQ's format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

from broker.http.admin import bad_request
from broker.http.permissions import require_patterns
from broker.management.fields import short_text
from broker.security.passwords import SHA256

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from broker.management.listing import Row
    from broker.node import Node
    from broker.security.user import User


def exported_accounts(node: Node) -> Row:
    users = [user for _, user in sorted(node.registry.users.items())]
    return {
        "users": [_user_row(user) for user in users],
        "vhosts": [
            {"name": vhost.name, **({"metadata": vhost.details} if vhost.details else {})}
            for _, vhost in sorted(node.vhosts.items())
        ],
        "permissions": [row for user in users for row in _permission_rows(user)],
        "topic_permissions": [row for user in users for row in _topic_rows(user)],
    }


def _user_row(user: User) -> Row:
    return {
        "name": user.name,
        "password_hash": user.password.text,
        "hashing_algorithm": user.password.algorithm,
        "tags": sorted(user.tags),
        "limits": dict(user.limits),
    }


def _permission_rows(user: User) -> Iterator[Row]:
    for vhost, permission in sorted(user.permissions.items()):
        texts = {str(action): text for action, text in permission.texts().items()}
        yield {"user": user.name, "vhost": vhost, **texts}


def _topic_rows(user: User) -> Iterator[Row]:
    for (vhost, exchange), topics in sorted(user.topic_permissions().items()):
        yield {
            "user": user.name,
            "vhost": vhost,
            "exchange": exchange,
            "write": topics.write,
            "read": topics.read,
        }


# Changes that a file asks for (see broker.security.registry)


def vhost_changes(items: list[dict[str, Any]], node: Node) -> Iterator[list[Any]]:
    for item in items:
        name = short_text(item, "name")
        details = item.get("metadata", {})
        if not isinstance(details, dict):
            raise bad_request("vhosts: metadata must be an object")
        for key in ("description", "tags"):
            if key in item:
                details = {**details, key: item[key]}
        known = node.vhosts.get(name)
        uid = uuid4().bytes if known is None else known.uid
        members = node.members() if known is None else list(known.members)
        yield ["vhost", name, uid, members, details]


def user_changes(items: list[dict[str, Any]]) -> Iterator[list[Any]]:
    for item in items:
        name, tags = short_text(item, "name"), item.get("tags", [])
        if isinstance(tags, str):  # as old files have them
            tags = [tag.strip() for tag in tags.split(",") if tag.strip()]
        if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
            raise bad_request("users: tags must be a list of texts")
        stored = _text(item, "password_hash", "")
        yield ["user", name, stored, _text(item, "hashing_algorithm", SHA256), tags]
        limits = item.get("limits", {})
        for limit, number in limits.items() if isinstance(limits, dict) else ():
            yield ["user-limit", name, limit, _whole(number, limit)]


def permission_changes(items: list[dict[str, Any]]) -> Iterator[list[Any]]:
    for item in items:
        patterns = [_text(item, key) for key in ("configure", "write", "read")]
        require_patterns(*patterns)
        yield ["permission", short_text(item, "vhost"), short_text(item, "user"), *patterns]


def topic_changes(items: list[dict[str, Any]]) -> Iterator[list[Any]]:
    for item in items:
        whose = [short_text(item, key) for key in ("vhost", "user", "exchange")]
        patterns = [_text(item, key) for key in ("write", "read")]
        require_patterns(*patterns)
        yield ["topic-permission", *whose, *patterns]


def limit_changes(vhost: str, value: object) -> Iterator[list[Any]]:
    """RabbitMQ keeps the limits of a vhost as a parameter."""
    if not isinstance(value, dict):
        raise bad_request("parameters: vhost-limits must be an object")
    for limit, number in value.items():
        yield ["vhost-limit", vhost, limit, _whole(number, limit)]


def _text(item: Mapping[str, Any], key: str, default: str | None = None) -> str:
    value = item.get(key, default)
    if not isinstance(value, str):
        raise bad_request(f"{key}: it must be a text")
    return value


def _whole(value: object, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise bad_request(f"{name}: it must be a number")
    return value
