"""The console's files as a browser gets them: from memory, with headers that keep others out."""

import http.client
import re
from collections.abc import Iterator

import pytest

from broker.console.assets import PAGE, PREFIX, load_assets
from tests.support.admin import Api
from tests.support.process import BrokerProcess

ASSETS = load_assets()
IMPORT = re.compile(r'^import [^;]*? from "([^"]+)";$', re.MULTILINE)
ADDRESS = re.compile(r"\w+://[^\s\"'`]+")
SVG_NAMESPACE = "http://www.w3.org/2000/svg"
# All ways from a string to markup or script.
SINKS = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc"
)


class Client:
    """Sends a path as it is: no library tidies it up."""

    def __init__(self, node: BrokerProcess) -> None:
        self._connection = http.client.HTTPConnection(node.host, node.http_port, timeout=60)

    def ask(
        self, path: str, method: str = "GET", **headers: str
    ) -> tuple[http.client.HTTPResponse, bytes]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self._connection.request(method, path, headers=named)
        response = self._connection.getresponse()
        return response, response.read()

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def client(node: BrokerProcess) -> Iterator[Client]:
    client = Client(node)
    yield client
    client.close()


def path_of(name: str) -> str:
    return "/" if name == PAGE else PREFIX + name


def test_there_is_a_page_with_scripts_styles_and_an_icon():
    assert {PAGE, "app.js", "base.css", "icon.svg", "views/overview.js"} <= ASSETS.keys()


@pytest.mark.parametrize("name", sorted(ASSETS))
def test_a_file_is_given_without_a_login_as_what_it_is(client: Client, name: str):
    response, body = client.ask(path_of(name))
    assert response.status == 200
    assert body == ASSETS[name].body
    assert response.headers["Content-Type"] == ASSETS[name].content_type


def test_browsers_are_told_to_trust_nothing_but_this_node(client: Client):
    response, _ = client.ask("/")
    policy = dict(
        part.strip().split(" ", 1)
        for part in response.headers["Content-Security-Policy"].split(";")
    )
    assert policy["default-src"] == "'none'"
    assert policy["frame-ancestors"] == "'none'"
    assert policy["require-trusted-types-for"] == "'script'"
    for kind in ("script-src", "style-src", "connect-src", "img-src"):
        assert policy[kind] == "'self'", "nothing inline, nothing from elsewhere"
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.headers["X-Frame-Options"] == "DENY"
    assert response.headers["Referrer-Policy"] == "no-referrer"
    assert response.headers["Cross-Origin-Opener-Policy"] == "same-origin"
    assert "Set-Cookie" not in response.headers


def test_what_a_browser_has_already_is_not_sent_again(client: Client):
    first, _ = client.ask("/console/app.js")
    assert first.headers["Cache-Control"] == "no-cache", "asked about each time"
    etag = first.headers["ETag"]
    for known in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        response, body = client.ask("/console/app.js", If_None_Match=known)
        assert (response.status, body) == (304, b"")
        assert response.headers["ETag"] == etag
    response, body = client.ask("/console/app.js", If_None_Match='"another version"')
    assert (response.status, body) == (200, ASSETS["app.js"].body)


def test_head_says_the_same_without_a_body(client: Client):
    for path in ("/", "/console/base.css"):
        whole, body = client.ask(path)
        head, nothing = client.ask(path, "HEAD")
        assert (head.status, nothing) == (200, b"")
        assert head.headers["Content-Length"] == str(len(body))
        assert head.headers["ETag"] == whole.headers["ETag"]


@pytest.mark.parametrize(
    "path",
    [
        "/console",
        "/console/",
        "/console/views",
        "/console/views/",
        "/console/nothing.js",
        "/console/APP.JS",
        "/console/index.html/../app.js",
        "/console/../assets.py",
        "/console/..%2fassets.py",
        "/console/%2e%2e/assets.py",
        "/console/views/..%2f..%2f..%2fserver.py",
        "/console//app.js",
        "/console/app.js/",
        "/console/app.js%00",
        "/console/..\\assets.py",
        "/../../../../etc/passwd",
        "//etc/passwd",
        "/console/%252e%252e/assets.py",
        "/static/app.js",
        "/favicon.ico",
    ],
)
def test_no_other_path_leads_anywhere(client: Client, path: str):
    response, body = client.ask(path)
    assert response.status == 404, body


def test_files_cannot_be_changed(client: Client):
    for method in ("PUT", "DELETE", "PATCH", "POST"):
        response, _ = client.ask("/console/app.js", method)
        assert response.status == 405


def test_the_api_does_not_list_the_console(api: Api):
    paths = api.call("GET", "openapi.json").json["paths"]
    assert "/" not in paths
    assert not [path for path in paths if path.startswith(PREFIX)]


def test_all_that_the_page_loads_is_there():
    loaded = set(re.findall(r'(?:src|href)="([^"#]+)"', ASSETS[PAGE].body.decode()))
    assert "/console/app.js" in loaded
    assert {path.removeprefix(PREFIX) for path in loaded} <= ASSETS.keys()


def test_all_that_scripts_import_is_there_and_all_scripts_are_used():
    imported = {"app.js"}
    for name, asset in ASSETS.items():
        if not name.endswith(".js"):
            continue
        found = IMPORT.findall(asset.body.decode())
        statements = re.findall(r"^import\b", asset.body.decode(), re.MULTILINE)
        assert len(found) == len(statements), name
        for path in found:
            directory = name.rpartition("/")[0]
            target = path.removeprefix("./")
            if path.startswith("../"):
                target = path.removeprefix("../")
            elif directory:
                target = f"{directory}/{target}"
            assert target in ASSETS, f"{name} imports {path}"
            imported.add(target)
    assert imported == {name for name in ASSETS if name.endswith(".js")}


def test_nothing_names_another_host():
    for name, asset in ASSETS.items():
        assert set(ADDRESS.findall(asset.body.decode())) <= {SVG_NAMESPACE}, name


def test_no_script_makes_markup_of_a_text():
    for name, asset in ASSETS.items():
        assert not SINKS.search(asset.body.decode()), name
    page = ASSETS[PAGE].body.decode()
    assert "<style" not in page
    assert not re.search(r"\son\w+=|\sstyle=", page), "inline handlers and styles are forbidden"
    assert re.findall(r"<script[^>]*>([^<]*)</script>", page) == [""]
