"""Which of PostgreSQL's errors would come again: a server that answers and refuses is not away.

While a connection is opened libpq gives no SQLSTATE, only what the server said. A server that
speaks another language than English is taken for one that is away, as all others once were.
"""

import re
from typing import Final

import psycopg

# Classes of SQLSTATE: invalid authorization, invalid catalog or schema name, no privilege.
_STATES: Final = ("28", "3D", "3F", "42")
_WORDS: Final = re.compile(
    r'database ".*" does not exist|role ".*" does not exist|authentication failed|'
    r"no password supplied|no pg_hba\.conf entry|permission denied|is not permitted to log in|"
    r'database ".*" is not currently accepting connections|invalid value for parameter'
)


def is_refusal(error: BaseException | None) -> bool:
    """Of psycopg's errors."""
    if not isinstance(error, psycopg.Error):
        return False
    if error.sqlstate is not None:
        return error.sqlstate.startswith(_STATES)
    return bool(_WORDS.search(str(error)))
