"""What a caller's permissions let them do through the management API: what AMQP would."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.http.auth import require_entry
from broker.security.checks import Resource, check

if TYPE_CHECKING:
    from broker.http.admin import Call
    from broker.security.permissions import Action


def must(call: Call, action: Action, name: str, *, kind: Resource = "queue") -> None:
    """ChannelError 403 unless the user may do this to the queue or exchange of the path's vhost."""
    vhost = call.vhost().name
    require_entry(call.user, vhost)
    check(call.user, vhost, action, kind, name)
