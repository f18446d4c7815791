"""TLS as a URL asks for it: amqps://host?cacertfile=ca.pem&certfile=me.pem&keyfile=me.key.

The options are those of RabbitMQ's URLs. Without them the machine's authorities are trusted, or
those of OpenSSL's own variable SSL_CERT_FILE.
"""

import ssl
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class Tls:
    """Names of files, so that it can be sent to other processes; read when they are needed."""

    authority: str = ""  # who signs the servers' certificates
    certificate: str = ""  # to show to the server
    key: str = ""

    def context(self) -> ssl.SSLContext:
        """Raises OSError."""
        return _context(self)


def take_tls(scheme: str, options: dict[str, str]) -> Tls | None:
    """Out of the options of a URL, which it removes there. Raises ValueError."""
    names = ("cacertfile", "certfile", "keyfile")
    given = [name for name in names if name in options]
    if scheme != "amqps":
        if given:
            raise ValueError(f"{given[0]} is for amqps, not for {scheme}")
        return None
    tls = Tls(*(options.pop(name, "") for name in names))
    if tls.key and not tls.certificate:
        raise ValueError("keyfile is of no use without certfile")
    return tls


@lru_cache(maxsize=16)
def _context(tls: Tls) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=tls.authority or None)
    except OSError as error:  # which does not say of which file it speaks
        raise OSError(f"{tls.authority}: {error}") from None
    if tls.certificate:
        try:
            context.load_cert_chain(tls.certificate, tls.key or None)
        except OSError as error:
            raise OSError(f"{tls.certificate}, {tls.key}: {error}") from None
    return context
