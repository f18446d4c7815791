"""TLS between nodes: each shows a certificate, and each checks the other's."""

import ssl
from dataclasses import dataclass
from pathlib import Path

from broker.startup import StartupError


@dataclass(frozen=True, slots=True)
class TlsContexts:
    """For the connections that this node accepts, and for those that it dials."""

    accepting: ssl.SSLContext
    dialing: ssl.SSLContext


def load_contexts(certificate: Path, key: Path, authority: Path) -> TlsContexts:
    """Out of PEM files; `authority` signs the certificates of all nodes, and of nothing else.

    A node's certificate names the host under which the others dial it.
    """
    try:
        accepting = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority)
        dialing = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=authority)
        for context in (accepting, dialing):
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_cert_chain(certificate, key)
    except ssl.SSLError as error:
        raise StartupError(
            f"cannot use {certificate}, {key} and {authority} for TLS between nodes: "
            f"{error.reason or error}"
        ) from error
    except OSError as error:
        raise StartupError(
            f"cannot read {certificate}, {key} or {authority} for TLS between nodes: "
            f"{error.strerror}"
        ) from error
    return TlsContexts(accepting, dialing)
