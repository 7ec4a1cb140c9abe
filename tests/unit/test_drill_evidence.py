"""Evidence of drills: whatever was changed, removed, reordered, or cut is found with the public key alone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from statestore.definitions.objectives import RestoreObjectives
from statestore.drills.auditor import auditor_page
from statestore.drills.chain import Chain
from statestore.drills.evidence import Head, Run, digest_of, document_of
from statestore.drills.keys import KEY, KEY_FILE, PublicKey, SigningKey, public_key, signing_key, write_key_pair
from statestore.errors import EvidenceError, InputError
from statestore.reports import DrillRow

OBJECTIVES = RestoreObjectives(restorable_within=900_000)


class Keys:
    def __init__(self, directory: Path) -> None:
        self.private, self.public = directory / "key.pem", directory / "key.pub"
        self.key_id = write_key_pair(self.private, self.public)


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Keys:
    found = Keys(tmp_path)
    monkeypatch.setenv(KEY_FILE, str(found.private))
    return found


def signer() -> SigningKey:
    found = signing_key()
    assert found is not None
    return found


def row(task: int) -> DrillRow:
    return DrillRow(
        application="shop",
        store="totals",
        task=f"0_{task}",
        standing="proven",
        drilled=True,
        verdict="proven",
        drilled_ms=1_790_000_000_000 + task,
        source="snapshot",
        snapshot="0-17-abc",
        snapshot_age_seconds=12.5,
        topic="shop-totals-changelog",
        topic_id="an-id",
        start=10,
        end=20,
        committed=18,
        records=5,
        rows=3,
        log_rows=3,
        offsets=((18, 19),),
        rows_sha256="ab" * 32,
        snapshot_sha256="cd" * 32,
        store_digest="0123456789abcdef",
        log_digest="0123456789abcdef",
        seconds=1.25,
    )


def written(directory: Path, count: int = 4, evidence: str = "evidence") -> tuple[Chain, Head]:
    chain, head = Chain(directory / evidence, "shop"), Head()
    for task in range(count):
        head = chain.append(document_of(row(task), Run(run_id="run"), OBJECTIVES), signer(), head)
    return chain, head


def problems(chain: Chain, keys: Keys, head: Head) -> tuple[str, ...]:
    return chain.verify([public_key(keys.public)], head).problems


def test_an_untouched_chain_is_intact(tmp_path: Path, keys: Keys) -> None:
    chain, head = written(tmp_path)
    found = chain.verify([public_key(keys.public)], head)
    assert (found.problems, found.notes, found.head, len(found.documents)) == ((), (), head, 4)
    assert chain.verify([public_key(keys.public)], Head(2, _digest(chain, 2))).notes == (
        "2 documents are newer than the recorded head",
    )


@pytest.mark.behaviour("D6")
@pytest.mark.parametrize("every", [37, pytest.param(1, marks=pytest.mark.long)])
def test_a_change_of_any_byte_is_found(tmp_path: Path, keys: Keys, every: int) -> None:
    chain, head = written(tmp_path, 2)
    key = public_key(keys.public)
    for path in _files(chain):
        whole = path.read_bytes()
        for at in range(0, len(whole), every):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            assert chain.verify([key], head).problems, f"byte {at} of {path.name}"
        path.write_bytes(whole)
    assert not chain.verify([key], head).problems


def _leaves(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = content.items() if isinstance(content, dict) else enumerate(content)
    for name, value in items:
        yield from _leaves(value, (*path, name)) if isinstance(value, dict | list) and value else [(*path, name)]


def test_a_change_of_any_field_is_found_even_in_canonical_text(tmp_path: Path, keys: Keys) -> None:
    chain, _ = written(tmp_path, 1)
    (path,) = _files(chain)
    whole = path.read_bytes()
    for leaf in _leaves(json.loads(whole)):
        content = json.loads(whole)
        holder = content
        for name in leaf[:-1]:
            holder = holder[name]
        value = holder[leaf[-1]]
        holder[leaf[-1]] = value + 1 if isinstance(value, int) else f"{value}x"
        path.write_bytes(json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode())
        # The head of the changed chain, so that only signature and form can tell.
        assert chain.verify([public_key(keys.public)], chain.head()).problems, leaf


@pytest.mark.behaviour("D6")
@pytest.mark.parametrize("removed", [1, 2, 3, 4])
def test_a_missing_document_is_found_also_the_last(tmp_path: Path, keys: Keys, removed: int) -> None:
    chain, head = written(tmp_path)
    _files(chain)[removed - 1].unlink()
    assert f"document {removed} is missing" in problems(chain, keys, head)
    with pytest.raises(EvidenceError, match="not continued"):
        chain.append(document_of(row(9), Run(run_id="run"), OBJECTIVES), signer(), head)


def test_a_chain_that_is_gone_is_found(tmp_path: Path, keys: Keys) -> None:
    chain, head = written(tmp_path, 2)
    for path in _files(chain):
        path.unlink()
    assert problems(chain, keys, head) == ("document 1 is missing", "document 2 is missing")


@pytest.mark.behaviour("D6")
def test_reordered_documents_are_found(tmp_path: Path, keys: Keys) -> None:
    chain, head = written(tmp_path)
    second, third = _files(chain)[1:3]
    content = second.read_bytes()
    second.write_bytes(third.read_bytes())
    third.write_bytes(content)
    assert "document 2: it was written as document 3" in problems(chain, keys, head)


def test_a_chain_that_was_cut_and_grew_again_is_found(tmp_path: Path, keys: Keys) -> None:
    chain, head = written(tmp_path)
    _files(chain)[3].unlink()
    chain.append(document_of(row(7), Run(run_id="another"), OBJECTIVES), signer(), Head())
    assert any("the recorded head has" in problem for problem in problems(chain, keys, head))


def test_a_document_of_another_application_or_key_is_found(tmp_path: Path, keys: Keys) -> None:
    chain, head = written(tmp_path, 1)
    other = tmp_path / "evidence" / "bakery"
    chain.directory.rename(other)
    assert "document 1: it belongs to application shop" in problems(Chain(tmp_path / "evidence", "bakery"), keys, head)
    other.rename(chain.directory)
    strangers = tmp_path / "other"
    strangers.mkdir()
    found = problems(chain, Keys(strangers), head)
    assert len(found) == 1
    assert "no such public key was given" in found[0]


@pytest.mark.behaviour("D7")
def test_drills_at_the_same_time_make_one_chain(tmp_path: Path, keys: Keys) -> None:
    chain = Chain(tmp_path / "evidence", "shop")

    def append(task: int) -> Head:
        document = document_of(row(task), Run(run_id=f"run-{task % 2}"), OBJECTIVES)
        return Chain(tmp_path / "evidence", "shop").append(document, signer(), Head())

    with ThreadPoolExecutor(8) as threads:
        heads = list(threads.map(append, range(24)))
    assert sorted(head.length for head in heads) == list(range(1, 25))
    found = chain.verify([public_key(keys.public)], max(heads))
    assert not found.problems
    assert {document.task for document in found.documents} == {f"0_{task}" for task in range(24)}


def test_a_private_key_is_in_no_document_and_in_no_message(
    tmp_path: Path, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain, _ = written(tmp_path, 1)
    secret = keys.private.read_text()
    body = secret.splitlines()[1]
    assert body not in _files(chain)[0].read_text()
    assert body not in repr(signer())
    monkeypatch.delenv(KEY_FILE)
    monkeypatch.setenv(KEY, secret.replace("KEY-----\n", "KEY-----\n!", 1))
    with pytest.raises(InputError) as refused:
        signing_key()
    assert body[:20] not in str(refused.value)
    monkeypatch.setenv(KEY, secret)
    assert signer().key_id == keys.key_id


def test_unusable_keys_are_refused(tmp_path: Path, keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="never overwritten"):
        write_key_pair(keys.private, tmp_path / "more.pub")
    with pytest.raises(InputError, match="expected a public key"):
        public_key(keys.private)
    keys.private.chmod(0o644)
    with pytest.raises(InputError, match="chmod 0600"):
        signing_key()
    monkeypatch.setenv(KEY, "x")
    with pytest.raises(InputError, match="only one of them"):
        signing_key()
    monkeypatch.delenv(KEY)
    monkeypatch.delenv(KEY_FILE)
    assert signing_key() is None


def test_an_auditor_sees_the_drills_of_a_time_and_whether_all_evidence_is_intact(tmp_path: Path, keys: Keys) -> None:
    chain, head = written(tmp_path)
    key: PublicKey = public_key(keys.public)
    from_ms = 1_790_000_000_001
    page = auditor_page("shop", chain.verify([key], head), head, "the command topic", from_ms, from_ms + 2)
    assert "The evidence is intact" in page
    assert "shop/totals/0_1" in page
    assert "shop/totals/0_3" not in page
    assert "no protection against forgery" in page
    assert str(head) in page
    assert "<script" not in page
    _files(chain)[3].unlink()
    page = auditor_page("shop", chain.verify([key], head), head, "the command topic", from_ms, from_ms + 2)
    assert "The evidence is not intact" in page
    assert "document 4 is missing" in page


@pytest.mark.parametrize(
    "text", ["", "4", "4:abc", "x:" + "0" * 64, "-1:" + "0" * 64, "4:" + "G" * 64, "0:" + "0" * 64]
)
def test_what_is_no_head_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="no head of evidence"):
        Head.parse(text)


def _files(chain: Chain) -> list[Path]:
    assert isinstance(chain.directory, Path)
    return sorted(chain.directory.glob("*.json"))


#: Two documents of an earlier version, with their public key.
VERSION_1 = Path(__file__).parent / "evidence_version_1"


@pytest.mark.behaviour("D8")
def test_documents_of_version_1_still_verify_and_new_ones_follow_them(tmp_path: Path, keys: Keys) -> None:
    chain = Chain(tmp_path / "evidence", "shop")
    shutil.copytree(VERSION_1, str(chain.directory), ignore=shutil.ignore_patterns("*.pub"))
    old, new = public_key(VERSION_1 / "key.pub"), public_key(keys.public)
    found = chain.verify([old], chain.head())
    assert (found.problems, [document.schema_version for document in found.documents]) == ((), [1, 1])
    added = row(2).model_copy(update={"suite": "passed", "suite_expectations": 7, "suite_sha256": "ef" * 32})
    head = chain.append(document_of(added, Run(run_id="run"), OBJECTIVES), signer(), found.head)
    found = chain.verify([old, new], head)
    assert (found.problems, [document.schema_version for document in found.documents]) == ((), [1, 1, 2])
    page = auditor_page("shop", found, head, "the command topic", 0, 1_800_000_000_000)
    assert "passed, 0 of 7 expectations not met" in page


@pytest.mark.behaviour("D8")
@pytest.mark.parametrize("version", [1, 2])
def test_the_result_of_a_suite_cannot_be_added_or_removed(tmp_path: Path, keys: Keys, version: int) -> None:
    chain = Chain(tmp_path / "evidence", "shop")
    failed = row(0).model_copy(update={"verdict": "failed", "suite": "failed", "suite_failed": ("a rule",)})
    chain.append(document_of(failed, Run(run_id="run"), OBJECTIVES), signer(), Head())
    (path,) = _files(chain)
    content = json.loads(path.read_bytes() if version == 2 else next(VERSION_1.glob("*01.json")).read_bytes())
    result = {"verdict": "passed", "expectations": 1, "failed": [], "detail": ""}
    forged = [{**content, "suite": result}, {**content, "suite": None}, {**content, "schema_version": 3 - version}]
    forged += [{name: value for name, value in content.items() if name != "suite"}] if version == 2 else []
    public = [public_key(keys.public), public_key(VERSION_1 / "key.pub")]
    for each in forged:
        path.write_bytes(json.dumps(each, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode())
        assert chain.verify(public, chain.head()).problems, each


def _digest(chain: Chain, number: int) -> str:
    return digest_of(_files(chain)[number - 1].read_bytes())
