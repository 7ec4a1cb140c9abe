"""The Processor API without a broker: how a processor is found, and what its context lets it do."""

from __future__ import annotations

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Message

from statestore.errors import DefinitionError, InputError, UnknownStoreError
from statestore.kafka.record_headers import with_headers
from statestore.model import TopicPartition
from statestore.tasks.input_records import InputRecords
from statestore.tasks.processor import Record, load_key, load_processor
from statestore.tasks.processor_context import ProcessorContext, RecordContext

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

class Telling:
    def init(self, context):
        self.context = context
        self.tell(b"init")

    def process(self, record, context):
        self.tell(b"process")

    def close(self):
        self.tell(b"close")

    def tell(self, what):
        self.context.forward(None, what)

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

def shout(record):
    return record.value.upper()
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

    def __call__(self, topic, key, value, timestamp, headers=()):
        self.append((topic, key, value, timestamp, tuple(headers)))


def context(outputs=("out",), forwarded=None):
    record, forward = RecordContext(), Forwarded() if forwarded is None else forwarded
    record.timestamp = 1_234
    return ProcessorContext("app", "0_3", {"s": "the store"}, {}.__getitem__, outputs, forward, record)


def test_a_function_is_a_processor(package):
    forwarded = Forwarded()
    processor, found = load_processor(f"{package}.good:process"), context(forwarded=forwarded)
    processor.init(found)
    processor.process(RECORD, found)
    processor.close()
    assert forwarded == [("out", b"key", b"seen", 1_234, ())]


def test_of_a_class_each_task_has_its_own_object(package):
    forwarded = Forwarded()
    first, second = (load_processor(f"{package}.good:Counting") for _ in range(2))
    for processor in (first, first, second):
        processor.process(RECORD, context(forwarded=forwarded))
    assert [value for _, _, value, _, _ in forwarded] == [b"1", b"2", b"1"]


def test_a_class_is_told_of_its_begin_and_end(package):
    forwarded = Forwarded()
    processor, found = load_processor(f"{package}.good:Telling"), context(forwarded=forwarded)
    processor.init(found)
    processor.process(RECORD, found)
    processor.close()
    assert [value for _, _, value, _, _ in forwarded] == [b"init", b"process", b"close"]


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
    made.forward(None, None, topic="out", timestamp=1, headers=[("a", b""), ("a", None)])
    assert forwarded == [
        ("other", b"k", b"v", 1_234, ()),
        ("out", None, None, 1, (("a", b""), ("a", None))),
    ]


@pytest.mark.parametrize(
    ("outputs", "topic"),
    [((), None), ((), "out"), (("out", "other"), None), (("out",), "app-s-changelog"), (("out",), "")],
)
def test_a_topic_that_is_not_an_output_of_the_definition_is_refused(outputs, topic):
    forwarded = Forwarded()
    with pytest.raises(InputError, match="its output topics are: " + (", ".join(outputs) or "none")):
        context(outputs, forwarded).forward(b"k", b"v", topic=topic)
    assert forwarded == []


@pytest.mark.parametrize(
    ("key", "value", "headers", "what"),
    [
        ("k", b"v", (), "str as key"),
        (b"k", 5, (), "int as value"),
        (b"k", b"v", [("a", None), ("b", "text")], "str as header 'b'"),
        (b"k", b"v", [(b"a", b"")], "bytes: b'a'"),
    ],
)
def test_what_is_not_bytes_is_refused_before_anything_is_sent(key, value, headers, what):
    forwarded = Forwarded()
    with pytest.raises(TypeError, match=f"found {what}"):
        context(forwarded=forwarded).forward(key, value, headers=headers)
    assert forwarded == []


# -- keys to group by ---------------------------------------------------------------------------------------------


def test_the_key_to_group_by_is_had_from_a_function(package):
    assert load_key(f"{package}.good:shout")(RECORD) == b"VALUE"


@pytest.mark.parametrize("reference", ["good:absent", "good:number", "absent:f", "raises:f"])
def test_a_key_function_that_cannot_be_had_is_a_definition_error_that_names_it(package, reference):
    with pytest.raises(DefinitionError, match=f"group_by {package}.{reference}"):
        load_key(f"{package}.{reference}")


# -- from Kafka ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("headers", [None, [], [("a", b"1"), ("a", None)]])
def test_a_message_becomes_a_record(headers):
    made = Message(
        topic="in", partition=2, offset=7, key=b"k", value=None, headers=headers, timestamp=(TIMESTAMP_CREATE_TIME, 5)
    )
    found = InputRecords(TopicPartition("in", 2), *with_headers([made]))
    assert found.records == [Record("in", 2, 7, b"k", None, 5, tuple(headers or ()))]
