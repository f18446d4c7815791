"""How queues are named outside: names, URLs, and ARNs.

    http://HOST/000000000000/NAME                a queue of the vhost "/"
    http://HOST/sqs/VHOST/000000000000/NAME      a queue of another vhost
    arn:aws:sqs:REGION:000000000000:NAME         a queue of the vhost in which the ARN is used

Everything belongs to one account. The region is whatever the client signs for.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from broker.sqs.errors import BAD_ADDRESS, SqsError, bad_parameter

ACCOUNT: Final = "000000000000"
REGION: Final = "us-east-1"  # where a client does not name one
DEFAULT_VHOST: Final = "/"
PREFIX: Final = "sqs"  # of paths that name a vhost
FIFO_SUFFIX: Final = ".fifo"

_NEW_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,80}\Z")
_ARN: Final = re.compile(r"arn:aws[a-z-]*:sqs:[a-z0-9-]*:[0-9]*:(.+)\Z")


class Place(NamedTuple):
    """Where a queue is."""

    vhost: str
    name: str


def check_new_name(name: str) -> None:
    """Raise SqsError for a name that AWS would not give a queue."""
    stem = name.removesuffix(FIFO_SUFFIX)
    if len(name) > 80 or not _NEW_NAME.match(stem):
        raise bad_parameter(
            "QueueName",
            name,
            "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length.",
        )


def url_path(place: Place) -> str:
    name = quote(place.name, safe="")
    if place.vhost == DEFAULT_VHOST:
        return f"/{ACCOUNT}/{name}"
    return f"/{PREFIX}/{quote(place.vhost, safe='')}/{ACCOUNT}/{name}"


def place_of(url: str, vhost: str) -> Place:
    """The queue that a URL names; a name alone is one of `vhost`."""
    if "/" not in url and url:
        return Place(vhost, url)
    try:
        path = urlsplit(url).path
        parts = [unquote(part, errors="strict") for part in path.split("/")[1:]]
    except ValueError:
        parts = []
    if len(parts) == 2 and parts[0] == ACCOUNT and parts[1]:
        return Place(DEFAULT_VHOST, parts[1])
    if len(parts) == 4 and parts[0] == PREFIX and parts[2] == ACCOUNT and parts[3]:
        return Place(parts[1], parts[3])
    raise SqsError(BAD_ADDRESS, f"The address {url:.200} is not valid for this endpoint.")


def arn_of(name: str, region: str) -> str:
    return f"arn:aws:sqs:{region}:{ACCOUNT}:{name}"


def name_in_arn(arn: str, parameter: str) -> str:
    """The name of the queue that an ARN stands for."""
    match = _ARN.match(arn)
    if match is None:
        raise bad_parameter(parameter, arn, "It is not the ARN of a queue.")
    return match[1]
