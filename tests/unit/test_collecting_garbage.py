"""The garbage collector while records stream through."""

from __future__ import annotations

import gc

from statestore.tasks.garbage import CollectingNowAndThen


def test_what_is_there_after_the_first_batch_is_left_out_and_looked_at_again_afterwards():
    before = gc.get_freeze_count()
    with CollectingNowAndThen() as garbage:
        assert not gc.isenabled()
        imported_with_the_first_batch = [[] for _ in range(1_000)]
        garbage.now_and_then()
        frozen = gc.get_freeze_count()
        assert frozen >= before + len(imported_with_the_first_batch)
        garbage.now_and_then()
        assert gc.get_freeze_count() <= frozen
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
