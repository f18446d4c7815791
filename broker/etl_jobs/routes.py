"""`/api/etl/jobs`: jobs report themselves to any node, and are listed by all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from broker.etl_jobs.jobs import Jobs, NewsError, newest
from broker.http.admin import bad_request, not_found
from broker.http.auth import ADMINISTRATORS, not_authorised
from broker.http.messages import Response, json_response
from broker.management.asking import ask_all

if TYPE_CHECKING:
    from broker.http.admin import Admin, Call

HERE: Final = "/api/internal/etl/jobs"
GONE: Final = "/api/internal/etl/jobs/delete"


def add_etl_jobs(admin: Admin, jobs: Jobs) -> None:
    async def list_all(call: Call) -> Response:
        """All jobs, as they last reported themselves."""
        return json_response(await everywhere(call))

    async def show(call: Call) -> Response:
        """One job."""
        for row in await everywhere(call):
            if row["name"] == call.parameter("name"):
                return json_response(row)
        raise _unknown(call)

    async def put(call: Call) -> Response:
        """Report how a job does."""
        _require_writer(jobs, call, call.parameter("name"))
        try:
            is_new = jobs.put(call.parameter("name"), call.json(), _now_ms(call), call.user.name)
        except NewsError as error:
            raise bad_request(str(error)) from None
        return Response(status=201 if is_new else 204)

    async def delete(call: Call) -> Response:
        """Forget a job; one that still runs comes back."""
        name = call.parameter("name")
        _require_writer(jobs, call, name)
        here = jobs.delete(name)
        if not any([here, *await ask_all(call, GONE, {"name": name})]):
            raise _unknown(call)
        return Response(status=204)

    async def everywhere(call: Call) -> list[dict[str, Any]]:
        answers = await ask_all(call, HERE)
        return newest([*jobs.rows(_now_ms(call)), *(row for rows in answers for row in rows)])

    async def rows_here(call: Call) -> Response:
        return json_response(jobs.rows(_now_ms(call)))

    async def delete_here(call: Call) -> Response:
        name = str(call.json().get("name"))
        _require_writer(jobs, call, name)
        return json_response(jobs.delete(name))

    admin.add("GET", "/api/etl/jobs", list_all)
    admin.add("GET", "/api/etl/jobs/{name}", show)
    admin.add("PUT", "/api/etl/jobs/{name}", put)
    admin.add("DELETE", "/api/etl/jobs/{name}", delete)
    admin.add_internal("POST", HERE, rows_here)
    admin.add_internal("POST", GONE, delete_here)


def _require_writer(jobs: Jobs, call: Call, name: str) -> None:
    if not call.user.tags & ADMINISTRATORS and not jobs.may_write(name, call.user.name):
        raise not_authorised("another user reports this job")


def _now_ms(call: Call) -> int:
    return call.node.timers.now_ms()


def _unknown(call: Call) -> Exception:
    return not_found(f"no job {call.parameter('name')!r} has reported itself")
