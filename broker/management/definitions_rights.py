"""Who may import what: each item of a file asks for what its own route would ask for.

Administrators may import anything: they could give themselves every permission. Of a file that
others bring, what is there already needs no right, so that an export can be imported again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.http.auth import ADMINISTRATORS, not_authorised, require_entry
from broker.protocol.errors import access_refused
from broker.security.checks import (
    Resource,
    check,
    check_binding,
    check_new_exchange,
    check_new_queue,
)
from broker.vhost import RESERVED_PREFIX

if TYPE_CHECKING:
    from broker.http.admin import Call
    from broker.management.definitions_file import BindingItem, DefinitionsFile
    from broker.security.user import User
    from broker.vhost import VHost


def check_rights(call: Call, file: DefinitionsFile) -> None:
    """Before anything is made. Raises HttpError 401, or the ChannelError 403 that AMQP answers."""
    user = call.user
    if user.tags & ADMINISTRATORS:
        return
    _refuse_administrators_own(call, file)
    vhosts = call.node.vhosts
    for name in file.vhosts():
        require_entry(user, name)
    for exchange in file.exchanges:
        vhost = vhosts[exchange.vhost]
        if exchange.name not in vhost.exchanges:
            check(user, vhost.name, "configure", "exchange", exchange.name)
            check_new_exchange(user, vhost.name, exchange.name, exchange.arguments)
    for queue in file.queues:
        vhost = vhosts[queue.vhost]
        if queue.name not in vhost.queues:
            if queue.name.startswith(RESERVED_PREFIX):
                raise access_refused(f"queue name '{queue.name}' contains reserved prefix 'amq.*'")
            check(user, vhost.name, "configure", "queue", queue.name)
            check_new_queue(user, vhost.name, queue.name, queue.arguments)
    for binding in file.bindings:
        _check_binding(user, vhosts[binding.vhost], binding)


def _refuse_administrators_own(call: Call, file: DefinitionsFile) -> None:
    """Limits, operators' policies and global parameters that are not as they are."""
    node = call.node
    for _, vhost, limit, number in file.accounts:
        if node.vhosts[vhost].limits.get(limit) != number:
            raise not_authorised("only administrators change the limits of a vhost")
    for item in file.policies:
        there = node.vhosts[item.vhost].policies.sets[item.kind].get(item.policy.name)
        if item.kind == "operator-policy" and there != item.policy:
            raise not_authorised("only administrators change an operator policy")
    for name, value in file.global_parameters:
        parameters = node.global_parameters
        if name not in parameters or parameters[name] != value:
            raise not_authorised("only administrators change global parameters")


def _check_binding(user: User, vhost: VHost, item: BindingItem) -> None:
    source = vhost.exchanges.get(item.source)
    kind: Resource = "queue" if item.destination_type == "queue" else "exchange"
    there = vhost.queues if kind == "queue" else vhost.exchanges
    destination = there.get(item.destination)
    if source is not None and destination is not None:
        if source.has_binding(destination, item.key, item.arguments):
            return
    elif source is None and not user.may_use_key(vhost.name, item.source, "read", item.key):
        raise access_refused(f"read access to topic '{item.key}' refused for user '{user.name}'")
    end = (kind, item.destination)
    check_binding(user, vhost.name, item.source, end, item.key, vhost.exchanges)
