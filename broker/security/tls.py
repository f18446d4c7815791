"""TLS for clients: the certificate of this node, read anew when it changes, and those of clients.

Connections keep what they were opened with; new ones get what the files say now. Files that cannot
be used are told of, and leave everything as it is.
"""

import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import trio

from broker import logs
from broker.startup import StartupError

if TYPE_CHECKING:
    from broker.config import Config

LOOK_S: Final = 5.0  # between looks at whether the files have changed
# What may be asked of a client's certificate → what `ssl` calls it.
VERIFY: Final = {
    "none": ssl.CERT_NONE,
    "optional": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
# Names in a certificate by which users log in → what `ssl` calls those kinds of them.
ALTERNATIVE_NAMES: Final = {"dns": "DNS", "email": "email", "uri": "URI", "ip": "IP Address"}
COMMON_NAME: Final = "common_name"
LOGIN_FROM: Final = (COMMON_NAME, *ALTERNATIVE_NAMES)

_log = logs.get("tls")


class Certificates:
    """The contexts that new connections are to use. Raises StartupError at first."""

    def __init__(self, config: "Config") -> None:
        assert config.tls_certificate is not None
        assert config.tls_key is not None
        self._certificate, self._key = config.tls_certificate, config.tls_key
        self._authority = config.tls_ca
        self._verify = VERIFY[config.tls_verify]
        self._seen = self._looks()
        try:
            self.amqp, self.http = self._load()
        except (OSError, ValueError) as error:
            raise StartupError(f"cannot use TLS: {_reason(error)}") from error

    def _load(self) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        """For AMQP, where clients may show a certificate, and for HTTP, where they do not."""
        contexts = []
        for verify in (self._verify, ssl.CERT_NONE):
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            context.load_cert_chain(self._certificate, self._key)
            if verify != ssl.CERT_NONE:
                assert self._authority is not None
                context.load_verify_locations(self._authority)
            context.verify_mode = verify
            contexts.append(context)
        amqp, http = contexts
        return amqp, http

    def reload(self) -> None:
        """Read the files again."""
        self._seen = self._looks()
        try:
            self.amqp, self.http = self._load()
        except (OSError, ValueError) as error:
            _log.error("not_reloaded", reason=_reason(error))
        else:
            _log.info("reloaded", certificate=str(self._certificate))

    async def watch(self) -> None:
        """Reload whenever the files have changed."""
        while True:
            await trio.sleep(LOOK_S)
            if self._looks() != self._seen:
                self.reload()

    def _looks(self) -> list[tuple[int, int, int] | None]:
        return [_looks(path) for path in (self._certificate, self._key, self._authority)]


def _looks(path: Path | None) -> tuple[int, int, int] | None:
    """What changes when a file is written or replaced."""
    if path is None:
        return None
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return f"the certificate, its key or the authority is not as it must be: {error.reason}"
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
    return str(error)


def certified_name(certificate: dict[str, Any], login_from: str) -> str | None:
    """The user whom a certificate names, as RabbitMQ reads it; None if it names none.

    The common name, all of them if there are several, or the first alternative name of a kind.
    """
    if login_from == COMMON_NAME:
        subject = certificate.get("subject", ())
        names = [value for part in subject for kind, value in part if kind == "commonName"]
        return ",".join(names) or None
    wanted = ALTERNATIVE_NAMES[login_from]
    names = [value for kind, value in certificate.get("subjectAltName", ()) if kind == wanted]
    return names[0] if names else None
