"""The files of a new project: an application that keeps each customer's total, as text.

    <name>.yaml            definition
    <module>.py            processor
    test_<module>.py       test without a broker
    send_<module>.py       sends orders into the input topic
    environment.sh         settings, for `. environment.sh`

`<module>` is the name with `_` for what a module's name cannot have.
"""

from __future__ import annotations

import keyword
import re
import shlex
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import NamedTuple

from statestore.cli.next_steps import with_extra
from statestore.durable import write_durably
from statestore.errors import InputError
from statestore.model import check_name

ENVIRONMENT = "environment.sh"

_DEFINITION = """\
# What `statestore apply` puts into the catalogue. All fields: docs/metastore.md.
name: $name
input_topic: $name-orders
output_topics: [$name-totals]
dead_letter_topic: $name-failed      # orders that the processor fails on
processor: $module:process
stores:
  - {name: totals, key_serde: utf8, value_serde: int64}
"""

_PROCESSOR = '''\
"""Keeps what each customer has spent."""

from __future__ import annotations

import json

from statestore.tasks import ProcessorContext, Record, ValueAndTimestamp


def process(record: Record, context: ProcessorContext) -> None:
    """Add an order to its customer's total, and forward the new total."""
    totals = context.state_store("totals")
    customer = (record.key or b"").decode()
    found = totals.get(customer)
    total = (found.value if found else 0) + json.loads(record.value or b"")["cents"]
    totals.put(customer, ValueAndTimestamp(total, record.timestamp))
    context.forward(record.key, b"%d" % total)
'''

_TEST = '''\
"""Run it: python -m unittest discover $directory"""

import unittest
from pathlib import Path

from statestore.tasks import JSON, UTF8
from statestore.testing import TopologyTestDriver

DEFINITION = Path(__file__).with_name("$name.yaml")


class TotalsTest(unittest.TestCase):
    def test_each_customer_has_a_total(self) -> None:
        with TopologyTestDriver(DEFINITION, key_serde=UTF8, value_serde=JSON) as driver:
            driver.pipe("anna", {"cents": 5}, timestamp=1_000)
            driver.pipe("bert", {"cents": 1}, timestamp=2_000)
            driver.pipe("anna", {"cents": 2}, timestamp=3_000)
            self.assertEqual(driver.store("totals").get("anna").value, 7)
            self.assertEqual([total.value for total in driver.read("$name-totals")], [5, 1, 7])

    def test_an_order_without_an_amount_goes_to_the_dead_letters(self) -> None:
        with TopologyTestDriver(DEFINITION, key_serde=UTF8, value_serde=JSON) as driver:
            driver.pipe("anna", {"euros": 5}, timestamp=1_000)
            self.assertEqual(len(driver.read("$name-failed")), 1)
            self.assertIsNone(driver.store("totals").get("anna"))


if __name__ == "__main__":
    unittest.main()
'''

_SENDER = '''\
"""Send orders: python send_$module.py [HOW_MANY]"""

import json
import os
import random
import sys

from confluent_kafka import Producer

how_many = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
# Kafka's own partitioner: keys are where Kafka Streams, and a restore, look for them.
producer = Producer({"bootstrap.servers": os.environ["STATESTORE_BOOTSTRAP_SERVERS"], "partitioner": "murmur2_random"})
for _ in range(how_many):
    order = {"cents": random.randint(1, 10_000)}
    producer.produce("$name-orders", json.dumps(order).encode(), f"customer-{random.randint(1, 100)}".encode())
    producer.poll(0)
if left := producer.flush(30):
    sys.exit(f"{left} of {how_many} orders were not taken within 30 s")
print(f"{how_many} orders are in the topic $name-orders")
'''


class Project(NamedTuple):
    """A project that was made.

    Attributes
    ----------
    environment
        The file with the settings; it may have been there before.
    made
        Files that are new.
    """

    name: str
    module: str
    directory: Path
    environment: Path
    made: tuple[Path, ...]

    def next_steps(self) -> list[tuple[str, str]]:
        """Return the commands that run it, each with what it does."""
        definition = shlex.quote(str(self.directory / f"{self.name}.yaml"))
        sender = shlex.quote(str(self.directory / f"send_{self.module}.py"))
        return [
            (f". {shlex.quote(str(self.environment))}", "use its settings in this shell"),
            (f"python -m unittest discover {shlex.quote(str(self.directory))}", "test it without a broker"),
            (f"statestore apply --create-topics {definition}", "define it, and make its topics"),
            (f"python {sender} 1000", "send 1,000 orders"),
            with_extra("spark", f"statestore process --application {self.name}", "process them"),
            (f"statestore read totals customer-1 --application {self.name}", "look at a total"),
        ]


def make_project(directory: Path, name: str, settings: Mapping[str, str]) -> Project:
    """Write the files of a project. Nothing is written unless all of it can be.

    Parameters
    ----------
    directory
        Made if it is not there. One that has a project may get another one, with another name.
    settings
        Environment variables for a shell that works with it; an environment file that is there stays as it is.

    Raises
    ------
    InputError
        If the name is no application's, its module cannot be imported under that name, or a file is there already.
    """
    try:
        check_name(name)
    except ValueError as error:
        raise InputError(f"--name: {error}") from error
    directory = directory.absolute()
    module = _module(name)
    said = {"name": name, "module": module, "directory": shlex.quote(str(directory))}
    texts = {
        f"{name}.yaml": _DEFINITION,
        f"{module}.py": _PROCESSOR,
        f"test_{module}.py": _TEST,
        f"send_{module}.py": _SENDER,
    }
    files = {directory / file: Template(text).substitute(said) for file, text in texts.items()}
    environment = directory / ENVIRONMENT
    if there := [path.name for path in files if path.exists()]:
        raise InputError(
            f"{directory} has {', '.join(there)} already. Nothing was written. Name another directory, or another "
            f"application with --name"
        )
    if not environment.exists():
        files[environment] = _environment(directory, settings)
    directory.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        write_durably(path, text)
    return Project(name, module, directory, environment, tuple(files))


def _module(name: str) -> str:
    module = re.sub(r"\W", "_", name, flags=re.ASCII)
    if not module.isidentifier() or keyword.iskeyword(module):
        raise InputError(
            f"--name: expected a name that starts with a letter and is not a Python keyword, found {name!r}"
        )
    found = find_spec(module)
    if found is not None and found.origin is not None:
        raise InputError(
            f"--name: Python has a module {module} already ({found.origin}): the processor would hide it. Choose "
            f"another name"
        )
    return module


def _environment(directory: Path, settings: Mapping[str, str]) -> str:
    lines = [f"export {name}={shlex.quote(value)}" for name, value in settings.items()]
    path = f"export PYTHONPATH={shlex.quote(str(directory))}${{PYTHONPATH:+:$PYTHONPATH}}"
    said = "# The settings of this project: `. environment.sh`. All settings: docs/operations.md."
    return "\n".join([said, *lines, "# Where the processor is found.", path, ""])
