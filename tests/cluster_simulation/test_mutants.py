"""Every planted bug is caught within a few seeds."""

import pytest

from tests.cluster_simulation.mutants import FOCUS, MUTANTS, PLAIN, Mutant
from tests.cluster_simulation.seam_mutants import SEAM_FOCUS, SEAM_MUTANTS
from tests.cluster_simulation.world import run
from tests.simulation.__main__ import root_of
from tests.support.promises import breaks_a_promise

SEEDS = range(1, 61)
# The seed that noticed a bug when it was last looked for is tried first. Another may when the code
# changes: then all are, and this is to be brought up to date.
NOTICED = {
    "publishes_are_not_sent_again": 3,
    "dealing_begins_before_fronts_have_attached": 14,
    "a_deposed_leader_goes_on_dealing": 5,
    "snapshots_without_the_kept_entries": 2,
    "definitions_answered_before_they_are_applied": 2,
    "definitions_are_read_without_a_barrier": 5,
    "requests_are_made_as_often_as_they_come": 14,
    "acknowledged_before_it_is_durable": 2,
    "written_without_waiting_for_the_disk": 21,
    "settles_are_forgotten_before_the_log_has_them": 2,
    "commits_do_not_wait_for_acks": 3,
    "the_last_batch_is_stored_twice": 3,
    "get_is_answered_while_messages_are_loaded": 2,
}
# Caught by an assertion of the code under test, before any client could notice. A leader that has
# not applied all there is meets entries that it takes for its own; a member that forgot what it
# had acknowledged is told to cut off what it knows to be committed.
ASSERTED = {
    "leading_before_all_is_applied": "a leader applies its own proposals",
    "written_without_waiting_for_the_disk": " under commit ",
}


@pytest.mark.parametrize("mutant", [*MUTANTS, *SEAM_MUTANTS], ids=lambda mutant: mutant.__name__)
def test_a_planted_bug_is_caught(mutant: Mutant) -> None:
    focus = (FOCUS | SEAM_FOCUS).get(mutant, PLAIN)
    with mutant():
        for seed in (NOTICED.get(mutant.__name__, SEEDS[0]), *SEEDS):
            try:
                run(seed, **focus)
            except Exception as error:
                asserted = ASSERTED.get(mutant.__name__)
                if breaks_a_promise(error) or (asserted and asserted in str(root_of(error))):
                    return
    pytest.fail(f"{mutant.__name__} was not noticed in {len(SEEDS)} runs")
