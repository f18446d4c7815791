"""An HTTP door without a node behind it: whoever shows proof is let in, but one."""

from broker.http.messages import HttpError, Request
from broker.http.router import Router
from broker.http.server import HttpDoor, HttpLimits
from broker.internal_errors import InternalErrors
from broker.strangers import Files, Strangers

NOBODY = "Basic bm86"


async def _let_in(request: Request) -> None:
    if request.headers["authorization"] == NOBODY:
        raise HttpError(401, "Login failed")
    request.logged_in()


def make_door(
    router: Router, limits: HttpLimits | None = None, *, strangers_max: int = 2
) -> HttpDoor:
    files = Files(0)
    return HttpDoor(
        router,
        limits or HttpLimits(),
        strangers=Strangers(most=strangers_max, of_one_address=strangers_max, files=files),
        log_in=_let_in,
        errors=InternalErrors(),
    )
