"""Users, vhosts, permissions, limits and logins."""

from __future__ import annotations

from typing import Final

from broker.management.api.words import (
    AGES,
    COUNT,
    NOTHING,
    TEXT,
    WHOLE,
    Doc,
    Docs,
    deletes,
    each,
    many,
    puts,
    record,
    ref,
    shows,
)

_TAGS: Final = {"anyOf": [TEXT, many(TEXT)]}
_USER_BODY: Final = record(
    "tags", **each("password password_hash hashing_algorithm", TEXT), tags=_TAGS
)
_VHOST_BODY: Final = record(description=TEXT, tags=_TAGS)
_RIGHTS: Final = record("configure write read", **each("configure write read", TEXT))
_TOPIC_RIGHTS: Final = record("exchange write read", **each("exchange write read", TEXT))
_KEY: Final = record(
    "access_key_id created_ms",
    **each("access_key_id secret_access_key", TEXT),
    created_ms=COUNT,
)
_LIMIT: Final = Doc(
    summary="Set a limit; a negative one is none",
    body=record("value", value=WHOLE),
    answers={204: NOTHING},
)
_USER: Final = ref("User")
_PERMISSIONS: Final = many(ref("Permission"))
_TOPIC_PERMISSIONS: Final = many(ref("TopicPermission"))
_LOGIN_BODY: Final = record("username password", **each("username password", TEXT))

ACCOUNTS: Final[Docs] = {
    "/api/whoami": {"GET": shows("Who is calling", ref("Whoami"))},
    "/api/login": {
        "POST": Doc(
            summary="A token for a name and a password, or for a token that still holds",
            body=_LOGIN_BODY,
            answers={200: ref("Token")},
            errors=(401,),
            forms=True,
            open=True,
        ),
        "DELETE": deletes("Give a token back"),
    },
    "/api/users": {"GET": shows("Users", many(_USER))},
    "/api/users/without-permissions": {"GET": shows("Users who may enter no vhost", many(_USER))},
    "/api/users/bulk-delete": {
        "POST": Doc(
            summary="Delete users: all of them, or none if one is missing",
            body=record("users", users=many(TEXT)),
            answers={204: NOTHING},
        )
    },
    "/api/users/{user}": {
        "GET": shows("A user", _USER),
        "PUT": puts("Make or change a user", _USER_BODY),
        "DELETE": deletes("Delete a user, and end the user's connections"),
    },
    "/api/users/{user}/permissions": {"GET": shows("Permissions of a user", _PERMISSIONS)},
    "/api/users/{user}/topic-permissions": {
        "GET": shows("Topic permissions of a user", _TOPIC_PERMISSIONS)
    },
    "/api/users/{user}/access-keys": {
        "GET": shows("What a user's SQS clients sign with, without the secrets", many(_KEY)),
        "POST": Doc(summary="A new access key; its secret is shown once", answers={201: _KEY}),
    },
    "/api/users/{user}/access-keys/{id}": {"DELETE": deletes("Delete an access key")},
    "/api/user-limits": {"GET": shows("Limits of users", many(ref("UserLimits")))},
    "/api/user-limits/{user}": {"GET": shows("Limits of a user", many(ref("UserLimits")))},
    "/api/user-limits/{user}/{name}": {
        "PUT": _LIMIT,
        "DELETE": deletes("Remove a limit of a user"),
    },
    "/api/vhosts": {"GET": shows("Vhosts", many(ref("Vhost")), **AGES)},
    "/api/vhosts/{vhost}": {
        "GET": shows("A vhost", ref("Vhost"), **AGES),
        "PUT": puts("Make a vhost, or describe it otherwise", _VHOST_BODY),
        "DELETE": deletes("Delete a vhost and all that is in it"),
    },
    "/api/vhosts/{vhost}/permissions": {"GET": shows("Permissions in a vhost", _PERMISSIONS)},
    "/api/vhosts/{vhost}/topic-permissions": {
        "GET": shows("Topic permissions in a vhost", _TOPIC_PERMISSIONS)
    },
    "/api/vhost-limits": {"GET": shows("Limits of vhosts", many(ref("VhostLimits")))},
    "/api/vhost-limits/{vhost}": {"GET": shows("Limits of a vhost", many(ref("VhostLimits")))},
    "/api/vhost-limits/{vhost}/{name}": {
        "PUT": _LIMIT,
        "DELETE": deletes("Remove a limit of a vhost"),
    },
    "/api/permissions": {"GET": shows("All permissions", _PERMISSIONS)},
    "/api/permissions/{vhost}/{user}": {
        "GET": shows("Permissions of a user in a vhost", ref("Permission")),
        "PUT": puts("Let a user into a vhost", _RIGHTS),
        "DELETE": deletes("Let a user into a vhost no more"),
    },
    "/api/topic-permissions": {"GET": shows("All topic permissions", _TOPIC_PERMISSIONS)},
    "/api/topic-permissions/{vhost}/{user}": {
        "GET": shows("Topic permissions of a user in a vhost", _TOPIC_PERMISSIONS),
        "PUT": puts("Say which keys a user may use with a topic exchange", _TOPIC_RIGHTS),
        "DELETE": deletes("Take away all topic permissions of a user in a vhost"),
    },
    "/api/topic-permissions/{vhost}/{user}/{exchange}": {
        "DELETE": deletes("Take away those for one exchange")
    },
}
