"""`/api/global-parameters`, `/api/cluster-name` and `/api/parameters`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.global_parameters import CLUSTER_NAME
from broker.http.admin import Admin, Call, bad_request, not_found
from broker.http.auth import ADMINISTRATORS, POLICYMAKERS
from broker.http.messages import Response, json_response
from broker.management.fields import checked_name, need, short_text
from broker.management.listing import answer_rows

if TYPE_CHECKING:
    from broker.management.site import Site
    from broker.vhost import VHost


def add_parameters(admin: Admin, site: Site) -> None:
    async def cluster_name(_call: Call) -> Response:
        return json_response({"name": site.cluster_name()})

    one = "/api/global-parameters/{name}"
    admin.add("GET", "/api/cluster-name", cluster_name)
    admin.add("PUT", "/api/cluster-name", _name_cluster, tags=ADMINISTRATORS)
    admin.add("GET", "/api/global-parameters", _list, tags=POLICYMAKERS)
    admin.add("GET", one, _get, tags=POLICYMAKERS)
    admin.add("PUT", one, _put, tags=ADMINISTRATORS)
    admin.add("DELETE", one, _delete, tags=ADMINISTRATORS)
    # Parameters belong to components, such as shovels; there are none.
    of_one = "/api/parameters/{component}/{vhost}/{name}"
    admin.add("GET", "/api/parameters", _none, tags=POLICYMAKERS)
    admin.add("GET", "/api/parameters/{component}", _none, tags=POLICYMAKERS)
    admin.add("GET", "/api/parameters/{component}/{vhost}", _none_in, tags=POLICYMAKERS)
    admin.add("GET", of_one, _no_such, tags=POLICYMAKERS)
    admin.add("PUT", of_one, _no_component, tags=POLICYMAKERS)
    admin.add("DELETE", of_one, _no_such, tags=POLICYMAKERS)


async def _name_cluster(call: Call) -> Response:
    body = call.json()
    need(body, "name")
    await change(call, "global-parameter", CLUSTER_NAME, short_text(body, "name"))
    return Response(status=204)


async def _list(call: Call) -> Response:
    rows = [{"name": name, "value": value} for name, value in call.node.global_parameters.items()]
    return await answer_rows(call.request, rows, lambda row: row["name"], paged=False)


async def _get(call: Call) -> Response:
    name = _known(call)
    return json_response({"name": name, "value": call.node.global_parameters[name]})


async def _put(call: Call) -> Response:
    name, body = checked_name(call.parameter("name")), call.json()
    (value,) = need(body, "value")
    is_new = name not in call.node.global_parameters
    await change(call, "global-parameter", name, value)
    return Response(status=201 if is_new else 204)


async def _delete(call: Call) -> Response:
    await change(call, "-global-parameter", _known(call))
    return Response(status=204)


def _known(call: Call) -> str:
    name = call.parameter("name")
    if name not in call.node.global_parameters:
        raise not_found("Not Found")
    return name


async def change(call: Call, kind: str, *details: Any) -> None:
    """Make a recorded change that is no vhost's (see broker.journal); wait until it is durable."""
    vhost: VHost = next(iter(call.node.vhosts.values()))
    if vhost.catalog is not None:
        await call.changes(vhost.catalog, [kind, *details])
        return
    if vhost.journal is not None:
        vhost.journal.record(kind, *details)
    call.node.global_parameters.make(kind, *details)
    await call.happens(vhost.when_durable)


async def _none(_call: Call) -> Response:
    return json_response([])


async def _none_in(call: Call) -> Response:
    call.vhost()
    return json_response([])


async def _no_such(call: Call) -> Response:
    call.vhost()
    raise not_found("Not Found")


async def _no_component(call: Call) -> Response:
    call.vhost()
    component = call.parameter("component")
    raise bad_request(f"Validation failed\n\ncomponent {component} not found\n")
