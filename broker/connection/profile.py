"""What a client said of itself when it connected, for those who watch."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Nothing of it matters to the connection itself."""

    connected_ms: int = 0
    mechanism: str = ""
    heartbeat_s: int = 0
    client_name: str = ""
    client_properties: Mapping[str, object] = field(default_factory=dict)
