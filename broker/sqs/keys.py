"""Access keys: what requests are signed with, and whose they are.

Signing needs secrets that the broker can read, and stored passwords are hashes. So users have
access keys besides (broker.http.access_keys). A user whose password the configuration gives in
clear may sign with that as well, as long as it is the password: the name is the id of that key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.node import Node
    from broker.security.user import User


class AccessKeys:
    """Secrets by key id."""

    def __init__(self, node: Node) -> None:
        self._passwords = {one.name: one.password for one in node.config.users if one.password}
        self._registry = node.registry
        self._doorkeeper = node.doorkeeper

    def secret_of(self, key_id: str) -> str | None:
        owner = self._registry.owner_of(key_id)
        if owner is not None:
            return owner.access_keys[key_id].secret
        return self._passwords.get(key_id)

    async def user_of(self, key_id: str, host: str) -> User | None:
        """Whose key it is, now that it was used from there; None if they may not come in."""
        owner = self._registry.owner_of(key_id)
        if owner is not None:
            return await self._doorkeeper.admit(owner.name, host)
        password = self._passwords.get(key_id)
        if password is None:
            return None
        return await self._doorkeeper.log_in(key_id, password.encode(), host)
