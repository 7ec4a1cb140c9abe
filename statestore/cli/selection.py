"""Selects the stores of a command: from definitions, or from directories and topics."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from statestore.archive.archive import ArchiveSpec
from statestore.cli.output import is_quiet
from statestore.cli.service import Service
from statestore.definitions.application import ApplicationDefinition
from statestore.definitions.fields import Guarantee
from statestore.discovery.acknowledged import read_acknowledged
from statestore.discovery.applications import WithoutLock, discover
from statestore.discovery.directories import applications_in, unusable_applications
from statestore.discovery.hints import Hint, parse_hints
from statestore.discovery.known_store import KnownStore
from statestore.discovery.known_stores_file import read_known
from statestore.discovery.partitions import FailedStore, discovered_specs, failed_stores, select_store_partitions
from statestore.discovery.shapes_file import read_shapes, with_shapes
from statestore.discovery.store import NOT_JUDGED, DiscoveredStore
from statestore.errors import InputError, LockedError, UnknownApplicationError, UnknownStoreError, of_os_error
from statestore.kafka.cluster import Cluster
from statestore.kafka.topics import Topics
from statestore.metastore.claims import require_own
from statestore.metastore.definition_files import load_definitions
from statestore.model import StoreSelector
from statestore.objects.path import Location
from statestore.partition.spec import StorePartitionSpec
from statestore.statedir.lock import is_writable


class Where(NamedTuple):
    """Where Kafka and the state are."""

    cluster: Cluster
    state_dir: Path


@dataclass(frozen=True)
class PartitionSelection:
    """Selection on the command line.

    Attributes
    ----------
    service
        Whose catalogue tells the definitions; None: there is no catalogue.
    definitions
        YAML file or directory of definitions, instead of the catalogue.
    applications
        Their names; empty: all.
    stores
        Their names, each of which may come with settings (`discovery/hints.py`); empty: all.
    selectors
        Which partitions of which stores; empty: all.
    numbers
        Numbers of partitions; empty: all.
    here_only
        Only tasks that have a directory here, of applications without a definition.
    guarantee
        `processing.guarantee` of applications without a definition.
    reports_dir
        Where reports of verifications, and progress, are kept; None: nowhere.
    archive
        Which archive may know what stores without a directory are; None: none.
    shapes
        A file that says what stores of applications without a definition are; None: none does.
    whole
        All stores are worked on, also if some are named to say what they are.
    leftovers
        Directories of partitions that no topic has are judged, too.
    """

    where: Where
    service: Service | None = None
    definitions: Path | None = None
    applications: Sequence[str] = ()
    stores: Sequence[str] = ()
    selectors: Sequence[StoreSelector] = ()
    numbers: Sequence[int] = ()
    changelogs: Sequence[str] = ()
    retentions: Sequence[str] = ()
    here_only: bool = False
    guarantee: Guarantee = "exactly_once_v2"
    reports_dir: Location | None = None
    archive: ArchiveSpec | None = None
    shapes: Path | None = None
    whole: bool = False
    leftovers: bool = False

    @property
    def partitions(self) -> tuple[str, ...]:
        """All that is said of partitions; empty: all of them are asked for."""
        return (*map(str, self.numbers), *(part for selector in self.selectors for part in sorted(selector.parts)))

    def naming(self, stores: Iterable[str]) -> PartitionSelection:
        """Return what is asked for if these stores are named, too.

        Parameters
        ----------
        stores
            Each as of `StoreSelector`; settings of it may stand behind a colon.

        Raises
        ------
        InputError
            If one is malformed, or of an application other than those that are asked for.
        """
        said = [
            (StoreSelector.parse(name), f"{colon}{rest}") for name, colon, rest in (s.partition(":") for s in stores)
        ]
        own = list(dict.fromkeys(selector.application for selector, _ in said if selector.application is not None))
        if self.applications and (others := [name for name in own if name not in self.applications]):
            raise InputError(
                f"expected stores of {', '.join(self.applications)}, found one of {others[0]}: name the "
                "application only once, or the same one twice"
            )
        return replace(
            self,
            applications=self.applications or own,
            stores=tuple(dict.fromkeys([*self.stores, *(f"{selector.store}{rest}" for selector, rest in said)])),
            selectors=(*self.selectors, *(selector for selector, _ in said)),
        )


@dataclass(frozen=True)
class Chosen:
    """The selected stores.

    Attributes
    ----------
    applications
        Names of all.
    defined
        Those with a definition.
    specs
        Store partitions, application by application.
    discovered
        Stores of applications without a definition, those with a problem included.
    catalogue
        Pin of the catalogue that the definitions are from; None if they are not from one.
    named
        Stores that are asked for by name, or of which something is said; empty: all are, and of none.
    known
        By application without a definition, and store: what was known of it before.
    said
        By store: what is said of it.
    left_out
        What nobody has asked for by its name, and why it is not among the others.
    failed
        By application that was not named: the error that keeps all of its stores from being selected.
    """

    applications: tuple[str, ...]
    defined: tuple[ApplicationDefinition, ...]
    specs: list[StorePartitionSpec]
    discovered: list[DiscoveredStore]
    catalogue: str | None = None
    named: frozenset[str] = frozenset()
    known: Mapping[str, Mapping[str, KnownStore]] = field(default_factory=dict)
    said: Mapping[str, Hint] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    failed: Mapping[str, InputError] = field(default_factory=dict)

    def say_left_out(self) -> None:
        """Say on standard error what was left out, unless --quiet was said."""
        for what, why in self.left_out.items() if not is_quiet() else ():
            print(f"statestore: left out: {what}: {why}", file=sys.stderr)

    def failures(self) -> list[FailedStore]:
        """Return the stores whose applications failed; `-` stands for those of an application without a definition."""
        defined = {application.name for application in self.defined}
        others = [FailedStore(name, "-", error) for name, error in self.failed.items() if name not in defined]
        return [*failed_stores(self.defined, self.failed, self.named), *others]

    def troubled(self, trouble: str) -> list[DiscoveredStore]:
        """Return the discovered stores that have a problem of this sort, without the acknowledged ones."""
        return [store for store in self.discovered if store.trouble == trouble and not store.acknowledged]

    @property
    def not_judged(self) -> list[DiscoveredStore]:
        """The stores that are not judged, without the acknowledged ones."""
        return [store for trouble in NOT_JUDGED for store in self.troubled(trouble)]

    @property
    def acknowledged(self) -> list[DiscoveredStore]:
        """The stores that are not judged, and that a user has acknowledged."""
        return [store for store in self.discovered if store.acknowledged]

    @property
    def without_rows(self) -> dict[str, str]:
        """Reasons why a report has no row: for stores in memory or without a log, and for all that was left out."""
        none = [*self.troubled("unlogged"), *self.troubled("in memory")]
        return {**self.left_out, **{f"store {store.label}": store.problem for store in none}}

    def require_free(self) -> None:
        """Refuse to work on stores that could not be looked into.

        Raises
        ------
        LockedError
            Naming the first of them.
        """
        for store in self.troubled("in use"):
            raise LockedError(f"{store.label}: {store.problem}")

    def require_known(self) -> None:
        """Refuse to work on stores that are named, and of which something must be said first.

        One that is not named is its own trouble: no other store waits for what it needs.

        Raises
        ------
        InputError
            Naming each of them and the option that is needed.
        """
        troubled = [*self.troubled("needed"), *self.troubled("damaged")]
        needed = [f"{store.label}: {store.problem}" for store in troubled if store.name in self.named]
        if needed:
            raise InputError(
                f"{len(needed)} stores need an option first. Add it, or name other stores with --store:\n  "
                + "\n  ".join(needed)
            )


def choose(
    asked: PartitionSelection, topics: Topics, *, certain: bool = False, without_lock: WithoutLock = "never"
) -> Chosen:
    """Find out what was asked for.

    Parameters
    ----------
    certain
        Stores are written: a catalogue that could not be read to its end will not do.
    without_lock
        When stores without a definition are looked into without their tasks' locks, as of `discover`.

    Raises
    ------
    MetastoreDegradedError
        If that is how the catalogue is.
    OtherCatalogueError
        If certain, and an application belongs to another catalogue of the cluster.
    UnknownApplicationError, UnknownStoreError
        If there is no such application or store; the message lists those that are.
    InputError
        If an option is malformed or does not apply.
    """
    if asked.where.state_dir.is_dir() and not is_writable(asked.where.state_dir) and not is_quiet():
        print(
            f"statestore: {asked.where.state_dir} cannot be written, so it is only read. No lock files are created: "
            "make sure that no application uses it, for example through another mount",
            file=sys.stderr,
        )
    definitions, catalogue = _definitions(asked, certain=certain)
    names = list(dict.fromkeys(asked.applications)) or list(definitions) or applications_in(asked.where.state_dir)
    if not names:
        raise UnknownApplicationError(
            f"{asked.where.state_dir} has no application; add --application NAME if its state is gone"
        )
    defined = [definitions[name] for name in names if name in definitions]
    if certain and asked.definitions is None and asked.service is not None:
        require_own(topics, [application.name for application in defined], asked.service.service_id)
    others = [name for name in names if name not in definitions]
    hints = parse_hints(asked.stores, asked.changelogs, asked.retentions)
    said = {name: hint for name, hint in hints.items() if hint != Hint()}
    if said and (defined or len(others) != 1):
        raise InputError(
            f"settings of the stores {', '.join(said)} apply to one application without a definition; name it with "
            f"--application, found {', '.join(names)}"
        )
    for text in (*asked.changelogs, *asked.retentions):
        if (application := StoreSelector.parse(text.partition("=")[0]).application) not in (None, *others):
            raise InputError(f"{text!r}: expected a store of {others[0]}, found one of {application}")
    known = {name: read_known(asked.where.state_dir, name, asked.archive) for name in others}
    if asked.shapes is not None:
        shapes = read_shapes(asked.shapes, others, topics)
        known = {name: with_shapes(of, shapes.get(name, {}), asked.shapes, topics) for name, of in known.items()}
    failed: dict[str, InputError] = {}
    defined_topics = {
        store.changelog_of(application.name): application.name
        for application in definitions.values()
        for store in application.logged_stores
    }
    discovered: list[DiscoveredStore] = []
    for name in others:
        try:
            discovered += discover(
                asked.where,
                topics,
                name,
                said,
                known=known[name],
                named=hints,
                defined=defined_topics,
                here_only=asked.here_only,
                without_lock=without_lock,
            )
        except (InputError, OSError) as error:
            if len(names) == 1 or name in asked.applications:
                raise
            failed[name] = error if isinstance(error, InputError) else of_os_error(error)
            known.pop(name)
    acknowledged = {name: read_acknowledged(asked.where.state_dir, name) for name in others}
    discovered = [
        replace(store, acknowledged=str(acknowledged[store.application][store.name]))
        if store.trouble in NOT_JUDGED and store.name in acknowledged[store.application]
        else store
        for store in discovered
    ]
    if not asked.applications and not definitions:
        discovered += [
            DiscoveredStore(other.path.name, "-").with_problem("unknown", f"{other.path}: {other.reason}")
            for other in unusable_applications(asked.where.state_dir)
        ]
    wanted = {text.partition(":")[0] for text in asked.stores}
    wanted -= {name for name, hint in said.items() if hint.engine == "in_memory"}
    _require_stores(wanted, defined, discovered)
    if wanted and not asked.whole:
        discovered = [store for store in discovered if store.name in wanted]
    selectors = () if asked.whole else [selector for selector in asked.selectors if selector.store in wanted]
    specs, failed_defined = select_store_partitions(asked.where, topics, defined, wanted, leftovers=asked.leftovers)
    failed |= failed_defined
    for name, failure in failed.items():
        if len(names) == 1 or name in asked.applications:
            raise failure
        # It was not named: the other applications do not wait for what is wrong with it.
        print(f"statestore: left out: application {name}: {failure}", file=sys.stderr)
    specs += discovered_specs(asked.where, discovered, exactly_once=asked.guarantee == "exactly_once_v2")
    specs = _selected(specs, selectors)
    discovered = _with_selected_tasks(discovered, selectors)
    specs = _of_partitions(specs, asked.numbers)
    named = frozenset(wanted | {store.name for store in discovered if store.name in said})
    left_out = {}
    if not asked.applications:
        there = applications_in(asked.where.state_dir) if definitions else []
        left_out = {
            f"application {name}": f"it has no definition; to include it, name it: --application {name}"
            for name in there
            if name not in names
        }
    left_out |= {f"store {store.label}": store.problem for store in discovered if store.trouble == "foreign"}
    if not asked.stores:
        left_out |= {
            f"store {application.name}/{store.name}": "it is kept in memory, so nothing of it is on disk"
            for application in defined
            for store in application.stores
            if store.engine == "in_memory"
        }
    return Chosen(tuple(names), tuple(defined), specs, discovered, catalogue, named, known, said, left_out, failed)


def _definitions(asked: PartitionSelection, *, certain: bool) -> tuple[dict[str, ApplicationDefinition], str | None]:
    """Return the definitions, and the pin of the catalogue that they are from."""
    if asked.definitions is not None:
        return load_definitions(asked.definitions), None
    if asked.service is None:
        return {}, None
    view = asked.service.certain_view() if certain else asked.service.view()
    return view.catalogue.definitions(), str(view.pin)


def _require_stores(
    wanted: Iterable[str], defined: Sequence[ApplicationDefinition], discovered: Sequence[DiscoveredStore]
) -> None:
    known = {store.name for application in defined for store in application.stores}
    known |= {store.name for store in discovered}
    for name in wanted:
        if name not in known:
            raise UnknownStoreError(f"no store {name!r}; the stores are: {', '.join(sorted(known)) or 'none'}")


def _selected(specs: list[StorePartitionSpec], selectors: Sequence[StoreSelector]) -> list[StorePartitionSpec]:
    for selector in selectors:
        tasks = [spec.task for spec in specs if selector.selects_store(spec.application, spec.store.name)]
        for part in sorted(selector.parts) if tasks else ():
            if not any(selector._replace(parts=frozenset([part])).selects_task(task) for task in tasks):
                raise InputError(
                    f"store {selector.store} has no partition {part}; it has {', '.join(map(str, sorted(tasks)))}"
                )
    return [spec for spec in specs if not selectors or any(each.selects(spec.store_partition) for each in selectors)]


def _with_selected_tasks(stores: list[DiscoveredStore], selectors: Sequence[StoreSelector]) -> list[DiscoveredStore]:
    """Return the stores that are selected; those with a problem with the tasks of theirs that are."""
    found = []
    for store in stores if selectors else ():
        own = [selector for selector in selectors if selector.selects_store(store.application, store.name)]
        tasks = tuple(task for task in store.tasks if any(selector.selects_task(task) for selector in own))
        if own and (tasks or not store.tasks):
            found.append(store if store.trouble is None else replace(store, tasks=tasks))
    return found if selectors else stores


def _of_partitions(specs: list[StorePartitionSpec], partitions: Sequence[int]) -> list[StorePartitionSpec]:
    if not partitions:
        return specs
    known = {spec.task.partition for spec in specs if not spec.is_global}
    if outside := sorted(set(partitions) - known):
        raise InputError(f"partitions {outside} do not exist; there are {_ranges(known) or 'none'}")
    return [spec for spec in specs if spec.task.partition in partitions and not spec.is_global]


def _ranges(numbers: Iterable[int]) -> str:
    """Write numbers as `0 to 3, 7`."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][-1] == number - 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ", ".join(" to ".join(map(str, run)) for run in runs)
