"""The Processor API without a broker: how a processor is found, and what its context lets it do."""

from __future__ import annotations

import pytest

from statestore.errors import DefinitionError, InputError, UnknownStoreError
from statestore.tasks.processor import ProcessorContext, Record, load_processor

MODULES = {
    "good": """
def process(record, context):
    context.forward(record.key, b"seen")

class Counting:
    def __init__(self):
        self.seen = 0

    def process(self, record, context):
        self.seen += 1
        context.forward(record.key, b"%d" % self.seen)

class NoProcess:
    pass

class NeedsArguments:
    def __init__(self, what):
        pass

class Fails:
    def __init__(self):
        raise RuntimeError("no database")

class NotCallable:
    process = 5

number = 5
""",
    "syntax": "def process(:",
    "needs": "import a_module_that_does_not_exist",
    "raises": "raise RuntimeError('at import')",
}
RECORD = Record("in", 0, 5, b"key", b"value", 1_234)


@pytest.fixture
def package(tmp_path, monkeypatch):
    """The modules above, importable below a name of this test's own."""
    name = f"of_{tmp_path.name}"
    (tmp_path / name).mkdir()
    for module, text in {"__init__": "", **MODULES}.items():
        (tmp_path / name / f"{module}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    return name


class Forwarded(list):
    """What a processor forwarded."""

    def __call__(self, topic, key, value, timestamp):
        self.append((topic, key, value, timestamp))


def context(outputs=("out",), forwarded=None):
    made = ProcessorContext("app", "0_3", {"s": "the store"}, outputs, Forwarded() if forwarded is None else forwarded)
    made.timestamp = 1_234
    return made


def test_a_function_is_a_processor(package):
    forwarded = Forwarded()
    load_processor(f"{package}.good:process")(RECORD, context(forwarded=forwarded))
    assert forwarded == [("out", b"key", b"seen", 1_234)]


def test_of_a_class_each_task_has_its_own_object(package):
    forwarded = Forwarded()
    first, second = (load_processor(f"{package}.good:Counting") for _ in range(2))
    for process in (first, first, second):
        process(RECORD, context(forwarded=forwarded))
    assert [value for _, _, value, _ in forwarded] == [b"1", b"2", b"1"]


@pytest.mark.parametrize(
    "reference",
    [
        "absent:process",
        "good:absent",
        "good:number",
        "good:NoProcess",
        "good:NeedsArguments",
        "good:Fails",
        "good:NotCallable",
        "syntax:process",
        "needs:process",
        "raises:process",
    ],
)
def test_a_processor_that_cannot_be_had_is_a_definition_error_that_names_it(package, reference):
    with pytest.raises(DefinitionError, match=f"processor {package}.{reference}"):
        load_processor(f"{package}.{reference}")


def test_a_store_of_the_definition_is_had_and_another_one_refused():
    assert context().state_store("s") == "the store"
    with pytest.raises(UnknownStoreError, match="application app has no store 't'; its stores are: s"):
        context().state_store("t")


def test_a_record_is_forwarded_with_the_time_of_the_input_unless_told_otherwise():
    forwarded = Forwarded()
    made = context(("out", "other"), forwarded)
    made.forward(b"k", b"v", topic="other")
    made.forward(None, None, topic="out", timestamp=0)
    assert forwarded == [("other", b"k", b"v", 1_234), ("out", None, None, 0)]


@pytest.mark.parametrize(
    ("outputs", "topic"),
    [((), None), ((), "out"), (("out", "other"), None), (("out",), "app-s-changelog"), (("out",), "")],
)
def test_a_topic_that_is_not_an_output_of_the_definition_is_refused(outputs, topic):
    forwarded = Forwarded()
    with pytest.raises(InputError, match="its output topics are: " + (", ".join(outputs) or "none")):
        context(outputs, forwarded).forward(b"k", b"v", topic=topic)
    assert forwarded == []
