"""What commands send to a node stays with that node."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from broker.admin_client import AdminClient, AdminError


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed_with_the_password(status: int) -> None:
    reached: list[str] = []

    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            reached.append(self.path)
            self.send_error(404)

        def log_message(self, *_: object) -> None:
            pass

    with serving(Other) as other:

        class Node(Other):
            def do_GET(self) -> None:
                self.send_response(status)
                self.send_header("Location", other)
                self.send_header("Content-Length", "0")
                self.end_headers()

        with serving(Node) as node, pytest.raises(AdminError, match=str(status)):
            AdminClient(node, "admin", "secret").get("overview")
    assert reached == []
