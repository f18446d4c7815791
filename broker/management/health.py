"""`/api/health/checks/…`, aliveness and the like: 200 and ok, or 503 and what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from broker.http.admin import Admin, Call, bad_request
from broker.http.auth import MONITORS
from broker.http.messages import Response, json_response

if TYPE_CHECKING:
    from broker.management.site import Site

OK: Final = {"status": "ok"}
# What callers may name a protocol by.
_PROTOCOLS: Final = {
    "amqp091": "amqp",
    "amqp0.9.1": "amqp",
    "amqp": "amqp",
    "management": "http",
    "http": "http",
    "prometheus": "http",
    "http/prometheus": "http",
    "clustering": "clustering",
}
WITHOUT_QUORUM: Final = (
    "There are quorum queues that would lose their quorum if the target node is shut down"
)
_UNITS: Final = ("days", "weeks", "months", "years")


def add_health_checks(admin: Admin, site: Site) -> None:
    checks = _Checks(site)
    for path, handler in (
        ("alarms", _alarms),
        ("local-alarms", _local_alarms),
        ("port-listener/{port}", checks.port),
        ("protocol-listener/{protocol}", checks.protocol),
        ("certificate-expiration/{within}/{unit}", _certificates),
        ("virtual-hosts", _fine),
        ("node-is-quorum-critical", checks.critical),
        ("node-is-mirror-sync-critical", checks.mirrors),
    ):
        admin.add("GET", f"/api/health/checks/{path}", handler)
    admin.add("GET", "/api/healthchecks/node", _alarms)
    admin.add("GET", "/api/healthchecks/node/{node}", _alarms, tags=MONITORS)


class _Checks:
    def __init__(self, site: Site) -> None:
        self._site = site

    async def port(self, call: Call) -> Response:
        text = call.parameter("port")
        if not text.isascii() or not text.isdigit() or len(text) > 5:
            raise bad_request("Invalid port")
        ports = sorted(port for _, port in self._site.addresses.values())
        if int(text) in ports:
            return json_response({**OK, "port": int(text)})
        return _failed("No active listener", missing=int(text), ports=ports)

    async def protocol(self, call: Call) -> Response:
        name = _PROTOCOLS.get(call.parameter("protocol").lower(), call.parameter("protocol"))
        known = self._site.addresses
        if name in known:
            return json_response({**OK, "protocol": name})
        return _failed("No active listener", missing=name, protocols=list(known))

    async def critical(self, _call: Call) -> Response:
        """Whether queues would lose their majority without this node."""
        if self._alone:
            return json_response({**OK, "reason": "single node cluster"})
        queues = self._site.where.critical()
        return _failed(WITHOUT_QUORUM, queues=queues) if queues else json_response(OK)

    async def mirrors(self, _call: Call) -> Response:
        """Mirrors of classic queues: there are none."""
        return json_response({**OK, "reason": "single node cluster"} if self._alone else OK)

    @property
    def _alone(self) -> bool:
        return len(self._site.where.nodes()) == 1


async def _alarms(call: Call) -> Response:
    return _unless(call.node.alarms, "There are alarms in effect in the cluster")


async def _local_alarms(call: Call) -> Response:
    own = {name: text for name, text in call.node.alarms.items() if "@" not in name}
    return _unless(own, "There are alarms in effect on the node")


async def _certificates(call: Call) -> Response:
    if call.parameter("unit") not in _UNITS:
        raise bad_request("Invalid expiration unit")
    if not call.parameter("within").isdigit():
        raise bad_request("Invalid expiration value")
    return json_response(OK)


async def _fine(_call: Call) -> Response:
    return json_response(OK)


def _unless(alarms: dict[str, str], reason: str) -> Response:
    if not alarms:
        return json_response(OK)
    return _failed(reason, alarms=[{"resource": name, "reason": alarms[name]} for name in alarms])


def _failed(reason: str, **details: Any) -> Response:
    return json_response({"status": "failed", "reason": reason, **details}, status=503)
