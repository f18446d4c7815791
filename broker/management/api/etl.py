"""ETL jobs as they report themselves."""

from __future__ import annotations

from typing import Final

from broker.management.api.words import (
    COUNT,
    REAL,
    TEXT,
    Docs,
    Schema,
    deletes,
    each,
    many,
    puts,
    record,
    shows,
)

_NUMBERS: Final[dict[str, Schema]] = {
    **each("processed errors dead_letters batch_ms", COUNT),
    **each("lag_seconds rows_per_second error_rate", REAL | {"minimum": 0}),
}
_STATE: Final[Schema] = {"type": "string", "pattern": "^[a-z_]{1,32}$"}
_JOB: Final = record(
    " ".join(("name state updated_ms", *_NUMBERS)),
    name=TEXT,
    state=_STATE,
    updated_ms=COUNT,
    **_NUMBERS,
)
JOBS: Final[Docs] = {
    "/api/etl/jobs": {"GET": shows("ETL jobs, as they last reported themselves", many(_JOB))},
    "/api/etl/jobs/{name}": {
        "GET": shows("An ETL job", _JOB),
        "PUT": puts("Report how a job does", record("state", state=_STATE, **_NUMBERS)),
        "DELETE": deletes("Forget a job; one that still runs comes back"),
    },
}
