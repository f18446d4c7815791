"""A node's way into its cluster: it asks around until it has a number, on disk."""

from collections.abc import Awaitable, Callable
from enum import Enum
from functools import partial
from typing import Final

import trio

from broker import logs
from broker.cluster.complaints import Complaints
from broker.cluster.forming import Card, Join, Take, decide
from broker.cluster.identity import Identity, IdentityError, IdentityKeeper
from broker.cluster.options import PeersOptions

SAVE_AGAIN_S: Final = 1.0  # after the disk would not take the identity

_log = logs.get("cluster")


class Membership(Enum):
    """How far this node is part of a cluster."""

    FORMING = "forming"  # all listed nodes are fresh, or not all have been seen yet
    JOINING = "joining"  # it is fresh and has met a formed cluster: waits till that one adds it
    MEMBER = "member"


class Enrolment:
    """Until this node is a member. One that was a member before is one at once."""

    def __init__(
        self,
        identity: Identity,
        keeper: IdentityKeeper,
        card: Callable[[], Card],
        ask_all: Callable[[], Awaitable[dict[str, Card]]],
        options: PeersOptions,
    ) -> None:
        self.membership = Membership.FORMING if identity.fresh else Membership.MEMBER
        self.joined = False  # a cluster that was there before
        self._identity = identity
        self._keeper = keeper
        self._card = card
        self._ask_all = ask_all
        self._interval_s = options.forming_interval_s
        self._complaints = Complaints()

    async def run(self) -> None:
        while self.membership is not Membership.MEMBER:
            outcome = decide(self._card(), await self._ask_all())
            if isinstance(outcome, Take):
                await self._take(outcome)
                return
            joining = isinstance(outcome, Join)
            self.membership = Membership.JOINING if joining else Membership.FORMING
            name = self._identity.name
            self._complaints.tell("not_a_member_yet", name, outcome.reason, name=name)
            await trio.sleep(self._interval_s)

    async def _take(self, place: Take) -> None:
        self.joined = self.membership is Membership.JOINING
        await insist(partial(self._keeper.become, *place))
        self.membership = Membership.MEMBER
        _log.info(
            "member", node=place.number, name=self._identity.name, cluster=place.cluster.hex()
        )


async def insist(save: Callable[[], Awaitable[None]]) -> None:
    """Until it is on disk, however often that fails."""
    while True:
        try:
            return await save()
        except IdentityError as error:
            _log.error("identity_not_saved", reason=str(error))
            await trio.sleep(SAVE_AGAIN_S)
