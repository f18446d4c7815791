"""The policies of a vhost in effect: which queue and exchange has which, as they come and go."""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from broker import logs
from broker.declaring import check_altered
from broker.policies import ALTERNATE, EXCHANGE, Kind, Policy, PolicySet, effective_options
from broker.protocol.errors import precondition_failed
from exchanges.exchange import Exchange
from queues.options import altered
from queues.seams import AnyQueue
from queues.stream.names import INTERNAL

# Work done in one go, about three milliseconds of it: 128 queues that change (20 µs each), or so
# many fewer as there are patterns to try on each of them (a third of a microsecond).
SLICE_QUEUES: Final = 128
SLICE_PATTERNS: Final = 60  # as costly as the rest of the work on a queue
POLICIES_MAX: Final = 1000  # of a kind, in a vhost: every declare tries them all

_log = logs.get("policies")


class Clock(Protocol):
    def now_ms(self) -> int: ...
    def call_at(self, when_ms: int, callback: Callable[[], None]) -> object: ...


class PolicyStore:
    """Nothing here awaits: a change is made at once, and reaches many queues slice by slice.

    What a queue gets is always worked out from all the policies there are at that time, so that
    of several changes the newest wins wherever the work on an older one had got to.
    """

    def __init__(
        self,
        vhost: str,
        queues: Mapping[str, AnyQueue],
        exchanges: Mapping[str, Exchange],
        clock: Clock,
        *,
        record: Callable[..., None],
        forget_routes: Callable[[], None],
    ) -> None:
        self.sets: Final[dict[Kind, PolicySet]] = {
            "policy": PolicySet(),
            "operator-policy": PolicySet(),
        }
        self._vhost = vhost
        self._queues = queues
        self._exchanges = exchanges
        self._clock = clock
        self._record = record
        self._forget_routes = forget_routes
        self._due: list[AnyQueue | Exchange] = []  # still to be looked at, the last one first
        self._waiting: list[Callable[[], None]] = []
        self._told: set[tuple[str, str]] = set()  # policies and what of them did not fit
        self._log = _log.bind(vhost=vhost)

    # Changes

    def put(self, kind: Kind, policy: Policy) -> None:
        """Make a policy, or change it. Raises ChannelError if there are too many."""
        policies = self.sets[kind]
        if policies.get(policy.name) is None and len(policies) >= POLICIES_MAX:
            raise precondition_failed(f"there are {POLICIES_MAX} policies already")
        self._record(kind, *change_of(policy))
        policies.put(policy)
        self._changed(policy.name)

    def remove(self, kind: Kind, name: str) -> None:
        """Deleting what is not there changes nothing."""
        if self.sets[kind].get(name) is None:
            return
        self._record(f"-{kind}", name)
        self.sets[kind].remove(name)
        self._changed(name)

    def when_applied(self, action: Callable[[], None]) -> None:
        """Call back when every queue and exchange is as the policies want it; at once if so."""
        if self._due:
            self._waiting.append(action)
        else:
            action()

    def _changed(self, name: str) -> None:
        self._told = {told for told in self._told if told[0] != name}
        under_way = bool(self._due)
        # What an earlier change has not reached comes first, so that changes without end reach all.
        first = set(self._due)
        everything: list[AnyQueue | Exchange] = [*self._queues.values(), *self._exchanges.values()]
        self._due = [thing for thing in everything if thing not in first] + self._due
        if not under_way:
            self._sweep()

    def _sweep(self) -> None:
        patterns = sum(len(policies) for policies in self.sets.values())
        share = max(1, SLICE_QUEUES * SLICE_PATTERNS // (SLICE_PATTERNS + patterns))
        for _ in range(min(share, len(self._due))):
            thing = self._due.pop()
            if isinstance(thing, Exchange):
                if self._exchanges.get(thing.name) is thing:
                    self.apply_to_exchange(thing)
            elif self._queues.get(thing.name) is thing:
                self.apply_to_queue(thing)
        if self._due:
            # Not in the same burst of timers: others have their turn first.
            self._clock.call_at(self._clock.now_ms() + 1, self._sweep)
            return
        waiting, self._waiting = self._waiting, []
        for action in waiting:
            action()

    # What they come to

    def apply_to_all(self) -> None:
        """At a start, when all definitions are there and nothing is served yet."""
        for exchange in self._exchanges.values():
            self.apply_to_exchange(exchange)
        for queue in self._queues.values():
            self.apply_to_queue(queue)

    def alter(self, queue: AnyQueue, settings: Mapping[str, object]) -> None:
        """Have settings, arguments by name, count more than those that it was declared with.

        They take the place of those it has. Who declares it anew need not know of them. Raises
        ChannelError where the queue cannot be so.
        """
        text = f"queue '{queue.name}' in vhost '{self._vhost}'"
        check_altered(queue, text, altered(queue.arguments, settings))
        if queue.durable and queue.owner is None:
            self._record("settings", queue.name, queue.uid, settings)
        queue.settings = settings
        self.apply_to_queue(queue, is_altered=True)

    def apply_to_queue(self, queue: AnyQueue, *, is_altered: bool = False) -> None:
        """`is_altered`: its settings are others than before."""
        if queue.name in INTERNAL:
            return  # what the broker keeps for itself is not for others to bound
        queue_type = queue.options.type
        policy = self.sets["policy"].match(queue_type, queue.name)
        operator = self.sets["operator-policy"].match(queue_type, queue.name)
        names = (_name(policy), _name(operator))
        if names == (queue.policy, queue.operator_policy) == (None, None) and not (
            is_altered or queue.settings
        ):
            return  # most often; all that a change costs a queue that it is not for
        queue.policy, queue.operator_policy = names
        own = altered(queue.arguments, queue.settings)
        options, left_out = effective_options(own, policy, operator, queue_type=queue_type)
        if policy is not None and left_out:
            self._tell_left_out(policy, queue, left_out)
        if options != queue.options:
            queue.configure(options)

    def definition_of(self, queue: AnyQueue) -> dict[str, object]:
        """What its policies say, taken together."""
        policies = (
            self.sets["policy"].get(queue.policy or ""),
            self.sets["operator-policy"].get(queue.operator_policy or ""),
        )
        return {
            key: value
            for one in policies
            if one is not None
            for key, value in one.definition.items()
        }

    def _tell_left_out(self, policy: Policy, queue: AnyQueue, arguments: list[str]) -> None:
        """Once for a policy and an argument: there may be as many as there are queues."""
        for argument in arguments:
            told = (policy.name, argument)
            if told not in self._told:
                self._told.add(told)
                self._log.warning(
                    "setting_left_out",
                    policy=policy.name,
                    setting=argument.removeprefix("x-"),
                    first_queue=queue.name,
                )

    def apply_to_exchange(self, exchange: Exchange) -> None:
        if not exchange.name:
            return  # what the default exchange cannot route is unroutable, as in RabbitMQ
        policy = self.sets["policy"].match(EXCHANGE, exchange.name)
        alternate = None if policy is None else policy.definition.get(ALTERNATE)
        if exchange.use_policy(_name(policy), alternate=alternate):
            self._forget_routes()


def _name(policy: Policy | None) -> str | None:
    return None if policy is None else policy.name


def change_of(policy: Policy) -> tuple[object, ...]:
    """The policy as it is recorded (see broker.journal)."""
    return policy.name, policy.pattern, policy.apply_to, policy.priority, policy.definition
