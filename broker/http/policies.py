"""`/api/policies` and `/api/operator-policies`, as RabbitMQ's management API has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.http.admin import Admin, Call, bad_request, not_found
from broker.http.auth import ADMINISTRATORS, POLICYMAKERS
from broker.http.messages import Response, json_response
from broker.policies import InvalidPolicyError, Kind, Policy, parse_policy
from broker.policy_store import change_of

if TYPE_CHECKING:
    from broker.vhost import VHost


def add_policies(admin: Admin) -> None:
    _add("/api/policies", admin, "policy", tags=POLICYMAKERS)
    _add("/api/operator-policies", admin, "operator-policy", tags=ADMINISTRATORS)


def _add(path: str, admin: Admin, kind: Kind, *, tags: frozenset[str]) -> None:
    """Lists are for everybody who may see the vhost; single policies for those who make them."""

    async def list_all(call: Call) -> Response:
        shown = [_shown(vhost, one) for vhost in call.vhosts() for one in vhost.policies.sets[kind]]
        return json_response(shown)

    async def list_vhost(call: Call) -> Response:
        vhost = call.vhost()
        return json_response([_shown(vhost, one) for one in vhost.policies.sets[kind]])

    async def get(call: Call) -> Response:
        vhost = call.vhost()
        return json_response(_shown(vhost, _find(call, vhost, kind)))

    async def put(call: Call) -> Response:
        vhost = call.vhost()
        name = call.parameter("name")
        try:
            policy = parse_policy(name, call.json(), kind=kind)
        except InvalidPolicyError as error:
            raise bad_request(str(error)) from None
        await _up_to_date(call, vhost)
        is_new = vhost.policies.sets[kind].get(name) is None
        if vhost.catalog is None:
            vhost.policies.put(kind, policy)
        else:
            await call.changes(vhost.catalog, [kind, vhost.name, *change_of(policy)])
        await _in_effect(call, vhost)
        return Response(status=201 if is_new else 204)

    async def delete(call: Call) -> Response:
        vhost = call.vhost()
        await _up_to_date(call, vhost)
        name = _find(call, vhost, kind).name
        if vhost.catalog is None:
            vhost.policies.remove(kind, name)
        else:
            await call.changes(vhost.catalog, [f"-{kind}", vhost.name, name])
        await _in_effect(call, vhost)
        return Response(status=204)

    admin.add("GET", path, list_all)
    admin.add("GET", f"{path}/{{vhost}}", list_vhost)
    for method, handler in (("GET", get), ("PUT", put), ("DELETE", delete)):
        admin.add(method, f"{path}/{{vhost}}/{{name}}", handler, tags=tags)


def _find(call: Call, vhost: VHost, kind: Kind) -> Policy:
    name = call.parameter("name")
    policy = vhost.policies.sets[kind].get(name)
    if policy is None:
        what = kind.replace("-", " ")
        raise not_found(f"there is no {what} {name!r} in vhost {vhost.name!r}")
    return policy


async def _up_to_date(call: Call, vhost: VHost) -> None:
    """What another node of a cluster has answered is known here."""
    if vhost.catalog is not None:
        await call.succeeds(vhost.catalog.read)


async def _in_effect(call: Call, vhost: VHost) -> None:
    """Wait until a change is durable and has reached every queue."""
    await call.happens(vhost.when_durable)
    await call.happens(vhost.policies.when_applied)


def _shown(vhost: VHost, policy: Policy) -> dict[str, object]:
    return {
        "vhost": vhost.name,
        "name": policy.name,
        "pattern": policy.pattern,
        "apply-to": policy.apply_to,
        "definition": policy.definition,
        "priority": policy.priority,
    }
