"""Pages of other sites: what their browsers send is told apart by where it comes from."""

import pytest

from broker.http.messages import HttpError, Request
from broker.http.origins import refuse_other_sites

NAMES = ("mq.example.com",)


def is_refused(listens_on, method="PUT", scheme="http", **headers):
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    request = Request(method=method, path="/api/users/x", headers=sent, scheme=scheme)
    try:
        refuse_other_sites(request, listens_on=listens_on, names=NAMES)
    except HttpError as error:
        return int(error.status) == 403
    return False


@pytest.mark.parametrize(
    ("host", "origin", "refused"),
    [
        ("broker:15672", None, False),  # curl, boto3, rabbitmqadmin
        ("broker:15672", "http://broker:15672", False),
        ("BROKER:15672", "http://broker:15672", False),
        ("broker", "http://broker:80", False),
        ("broker", "https://broker", False),  # TLS ends at a proxy
        ("[::1]:15672", "http://[::1]:15672", False),
        ("10.0.0.1:15672", "https://mq.example.com", False),  # a proxy that changes Host
        ("broker:15672", "http://evil.example", True),
        ("broker:15672", "http://broker:8080", True),
        ("broker:15672", "http://broker", True),
        ("broker:15672", "null", True),
        ("broker:15672", "", True),
        ("broker:15672", "file://", True),
        ("broker:15672", "http://[", True),
        ("", "http://evil.example", True),
    ],
)
def test_changes_come_from_pages_of_ones_own_only(host, origin, refused):
    headers = {"host": host} | ({} if origin is None else {"origin": origin})
    assert is_refused("0.0.0.0", **headers) is refused
    assert not is_refused("0.0.0.0", method="GET", **headers)


@pytest.mark.parametrize("listens_on", ["127.0.0.1", "::1", "localhost"])
@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_on_loopback_only_names_of_loopback_are_ones_own(listens_on, method):
    for host in ("localhost:15672", "127.0.0.1", "[::1]:1", "127.9.9.9", "a.localhost", *NAMES, ""):
        assert not is_refused(listens_on, method, host=host), host
    for host in ("rebind.evil.example:15672", "localhost.evil.example", "10.0.0.1", "[", "*"):
        assert is_refused(listens_on, method, host=host), host
        assert not is_refused("0.0.0.0", method, host=host), host
