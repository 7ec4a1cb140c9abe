"""Evidence in object storage, where a document is appended by a request that fails if its number is taken."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from statestore.definitions.objectives import RestoreObjectives
from statestore.drills.chain import Chain
from statestore.drills.evidence import Head, Run, document_of
from statestore.drills.keys import KEY_FILE, public_key, signing_key, write_key_pair
from statestore.errors import EvidenceError
from statestore.objects.path import location
from statestore.objects.store import ObjectStore
from statestore.reports import DrillRow


def test_drills_at_once_make_one_chain_whose_changes_are_found(
    objects: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_key_pair(tmp_path / "key.pem", tmp_path / "key.pub")
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "key.pem"))
    signing, public = signing_key(), public_key(tmp_path / "key.pub")
    assert signing is not None
    key, place = signing, location(objects.url)

    def append(task: int) -> Head:
        names = {"application": "shop", "store": "totals", "task": f"0_{task}"}
        row = DrillRow(**names, standing="proven", verdict="proven", drilled=True, drilled_ms=task)
        document = document_of(row, Run(run_id="run"), RestoreObjectives())
        return Chain(place, "shop").append(document, key, Head())

    with ThreadPoolExecutor(4) as at_once:
        heads = sorted(at_once.map(append, range(8)))
    chain, head = Chain(place, "shop"), heads[-1]
    found = chain.verify([public], head)
    assert (found.problems, found.head, [each.length for each in heads]) == ((), head, [*range(1, 9)])
    assert {document.task for document in found.documents} == {f"0_{task}" for task in range(8)}

    last = chain.directory / "000000000008.json"
    content = last.read_bytes()
    last.write_bytes(content.replace(b'"proven"', b'"failed"'))
    assert len(chain.verify([public], head).problems) == 2, "its signature, and the recorded head"
    last.unlink()
    assert chain.verify([public], head).problems == ("document 8 is missing",)
    document = document_of(
        DrillRow(application="shop", store="totals", task="0_9", standing="proven", verdict="proven"),
        Run(run_id="run"),
        RestoreObjectives(),
    )
    with pytest.raises(EvidenceError, match="not continued"):
        chain.append(document, key, head)
    last.write_bytes(content)
    assert chain.append(document, key, head).length == 9
