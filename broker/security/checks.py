"""Which permissions each operation needs, exactly as in RabbitMQ; for AMQP and HTTP alike.

| operation | needs |
|---|---|
| declare a queue or exchange, unless passively | configure on it |
| … that is new and has dead letters, or an alternate | read on it too, and write on that exchange |
| delete a queue or exchange | configure on it |
| bind, unbind | write on what is bound, read on the source, and on the key if that is a topic's |
| publish | write on the exchange, and on the key if that is a topic exchange |
| consume, get, purge | read on the queue |

Each function raises the ChannelError (403) that AMQP answers. Names of queues that the server makes
up are checked as any other; the default exchange goes by the name amq.default.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias

from broker.protocol.errors import access_refused
from broker.security.permissions import Action, TopicAction
from broker.security.user import DEFAULT_EXCHANGE_ALIAS, User

if TYPE_CHECKING:
    from exchanges.exchange import Exchange

Resource: TypeAlias = Literal["queue", "exchange"]


def check(user: User, vhost: str, action: Action, resource: Resource, name: str) -> None:
    """That the user may do this to the queue or exchange of that name."""
    if not user.may(vhost, action, name):
        shown = name or DEFAULT_EXCHANGE_ALIAS
        raise access_refused(
            f"{action} access to {resource} '{shown}' in vhost '{vhost}' "
            f"refused for user '{user.name}'"
        )


def check_keys(
    user: User, vhost: str, exchange: "Exchange", action: TopicAction, keys: Iterable[str]
) -> None:
    """That the user may use these keys, if it is a topic exchange."""
    if exchange.routing_type != "topic":
        return
    for key in keys:
        if not user.may_use_key(vhost, exchange.name, action, key):
            raise access_refused(
                f"{action} access to topic '{key}' in exchange '{exchange.name}' in vhost "
                f"'{vhost}' refused for user '{user.name}'"
            )


def check_new_queue(user: User, vhost: str, name: str, arguments: Mapping[str, object]) -> None:
    """Of one that is not there yet, beside `configure`."""
    target = arguments.get("x-dead-letter-exchange")
    if isinstance(target, str):
        check(user, vhost, "read", "queue", name)
        check(user, vhost, "write", "exchange", target)


def check_new_exchange(user: User, vhost: str, name: str, arguments: Mapping[str, object]) -> None:
    """Of one that is not there yet, beside `configure`."""
    alternate = arguments.get("alternate-exchange")
    if isinstance(alternate, str):
        check(user, vhost, "read", "exchange", name)
        check(user, vhost, "write", "exchange", alternate)


def check_binding(
    user: User,
    vhost: str,
    source: str,
    destination: tuple[Resource, str],
    key: str,
    exchanges: "Mapping[str, Exchange]",
) -> None:
    """To bind or unbind; `exchanges` are those of the vhost."""
    check(user, vhost, "write", *destination)
    check(user, vhost, "read", "exchange", source)
    exchange = exchanges.get(source)
    if exchange is not None:
        check_keys(user, vhost, exchange, "read", (key,))
