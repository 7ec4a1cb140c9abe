"""The hash of a part's files depends on their present content, and on nothing else."""

from __future__ import annotations

import os

from tests.everything.conftest import Repository
from tests.everything.table import BEGIN, END
from tests.everything.tree import commit, tree_hash


def test_a_hash_does_not_change_when_a_change_is_committed(repository: Repository) -> None:
    before = tree_hash(["src"], repository.root)
    repository.write("src/a.py", "a = 2\n")
    uncommitted = tree_hash(["src"], repository.root)
    repository.commit()
    assert before != uncommitted == tree_hash(["src"], repository.root)
    repository.write("src/a.py", "a = 1\n")
    assert tree_hash(["src"], repository.root) == before


def test_new_renamed_deleted_and_executable_files_change_it(repository: Repository) -> None:
    path = repository.root / "src" / "a.py"
    hashes = [tree_hash(["src"], repository.root)]
    new = repository.write("src/b.py", "")
    hashes.append(tree_hash(["src"], repository.root))
    new.rename(new.with_name("c.py"))
    hashes.append(tree_hash(["src"], repository.root))
    path.chmod(0o755)
    hashes.append(tree_hash(["src"], repository.root))
    path.unlink()
    hashes.append(tree_hash(["src"], repository.root))
    assert len({*hashes}) == len(hashes)


def test_a_file_of_the_same_size_and_time_is_read_again(repository: Repository) -> None:
    path = repository.root / "src" / "a.py"
    before, times = tree_hash(["src"], repository.root), path.stat()
    other = repository.write("src/other", "a = 2\n")
    os.utime(other, ns=(times.st_atime_ns, times.st_mtime_ns))
    other.rename(path)
    assert tree_hash(["src"], repository.root) != before


def test_ignored_files_and_files_elsewhere_do_not_change_it(repository: Repository) -> None:
    before = tree_hash(["src"], repository.root)
    repository.write("docs/testing.md", "more text\n")
    repository.write("build/b.py", "")
    assert tree_hash(["src"], repository.root) == before
    assert tree_hash(["src", "build"], repository.root) == before


def test_results_in_a_document_do_not_change_it_and_other_text_does(repository: Repository) -> None:
    hashes = []
    for text, results in (("text", "green"), ("text", "red\nred"), ("more text", "red\nred")):
        repository.write("docs/testing.md", f"{text}\n{BEGIN}\n{results}\n{END}\nend\n")
        hashes.append(tree_hash(["docs"], repository.root))
    assert hashes[0] == hashes[1] != hashes[2]


def test_a_commit_is_told_with_the_changes_of_these_files_alone(repository: Repository) -> None:
    clean = commit(["src"], repository.root)
    assert len(clean) == 12
    repository.write("docs/testing.md", "more text\n")
    assert commit(["src"], repository.root) == clean
    assert commit((), repository.root) == f"{clean}+changes"
    repository.write("src/new.py", "")
    assert commit(["src"], repository.root) == f"{clean}+changes"


def test_without_git_nothing_is_known(tmp_path) -> None:
    assert (commit((), tmp_path), tree_hash(["."], tmp_path)) == ("unknown", "unknown")
