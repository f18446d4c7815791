"""Every planted bug is caught: by the script of its rule, and most by random search too."""

import pytest

from queues.raft.core import Raft
from tests.raft.mutants import (
    MUTANTS,
    AckBeforeFsync,
    AckLastIndex,
    AlwaysTruncate,
    ApplyOffByOne,
    ChangeBeforeCommit,
    ConfigAtCommit,
    ConfigLostInSnapshot,
    ConfigNotReverted,
    LearnerCounted,
    SkipPrevCheck,
    StaleWriteCompletion,
    TwoChangesAtOnce,
)
from tests.raft.rules import RULES
from tests.raft.walk import Walk

WALKS_MAX = 150


def name_of(value: object) -> str:
    return getattr(value, "__name__", str(value))


@pytest.mark.parametrize("rule", RULES.values(), ids=name_of)
def test_the_core_keeps_the_rule(rule):
    rule(Raft)


@pytest.mark.parametrize("mutant", MUTANTS, ids=name_of)
def test_a_script_catches_the_mutant(mutant):
    with pytest.raises(AssertionError):
        RULES[mutant](mutant)


@pytest.mark.parametrize(
    "mutant",
    [
        AckBeforeFsync,
        AlwaysTruncate,
        SkipPrevCheck,
        AckLastIndex,
        StaleWriteCompletion,
        TwoChangesAtOnce,
        ChangeBeforeCommit,
        ConfigAtCommit,
        ConfigNotReverted,
        LearnerCounted,
        ConfigLostInSnapshot,
        ApplyOffByOne,
    ],
    ids=name_of,
)
def test_random_walks_catch_the_mutant(mutant):
    def hunt():
        for seed in range(WALKS_MAX):
            Walk(seed, mutant).run()

    with pytest.raises(AssertionError):
        hunt()
