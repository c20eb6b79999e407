"""`sam-consume check`: every problem at once; with --connect the way of a message to us, too."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from sam_pipeline.consumer.config import ConsumerConfig, load_consumer, password, state_directory
from sam_pipeline.consumer.sources.make import stomp_settings
from sam_pipeline.consumer.sources.round_trip import round_trips
from sam_pipeline.schema.errors import ConfigError, SamError
from sam_pipeline.schema.net.broker_url import SPOOL, STOMP
from sam_pipeline.schema.net.round_trip import RoundTrip
from sam_pipeline.schema.net.tls import TlsFiles, tls_context
from sam_pipeline.schema.program.command import OK, text_table, to_json
from sam_pipeline.sql.checks.check import loader_problems
from sam_pipeline.sql.database.config import load_database
from sam_pipeline.sql.database.engine import make_engine
from sam_pipeline.sql.database.version import require_current
from sam_pipeline.sql.loading.catalogue import Catalogue

COLUMNS = ("broker", "address", "destination", "proven", "seconds")


def handle(args: argparse.Namespace) -> int:
    """Print what was found.

    Raises:
        ConfigError: all the problems.
    """
    problems: list[str] = []
    config = _examined_config(args, problems)
    _examine_database(args, config, problems)
    trips = _trips(config) if config and args.connect else []
    problems += [trip.problem for trip in trips if trip.problem]
    problems = list(dict.fromkeys(problems))  # both sections are of one file
    if args.json:
        print(to_json({"problems": problems, "brokers": [trip._asdict() for trip in trips]}))
    else:
        _tell(trips, problems)
    sys.stdout.flush()  # what was proven stands before what was not
    if problems:
        raise ConfigError(problems)
    return OK


def _tell(trips: Sequence[RoundTrip], problems: Sequence[str]) -> None:
    if trips:
        print(text_table(COLUMNS, map(_row, trips)))
    if not problems:
        print("no problem found")


def _row(trip: RoundTrip) -> tuple[str, ...]:
    seconds = f"{trip.seconds:.3f}"
    return trip.broker, trip.address, trip.destination, trip.proven or "failed", seconds


def _examined_config(args: argparse.Namespace, problems: list[str]) -> ConsumerConfig | None:
    """None if it can't even be read as one."""
    try:
        config = load_consumer(args)
    except ConfigError as error:
        problems += error.problems
        return None
    problems += _bad_directories(config)
    problems += _bad_login(config)
    return config


def _bad_directories(config: ConsumerConfig) -> Iterator[str]:
    yield from _unusable(state_directory(), "state directory")
    for broker in config.parsed_brokers():
        if broker.kind == SPOOL:
            yield from _unusable(Path(broker.path), "spool")


def _bad_login(config: ConsumerConfig) -> Iterator[str]:
    """What is wrong with the files that say who we are."""
    if config.key_file and not config.certificate_file:
        yield "[consumer] key_file: is of no use without certificate_file"
    try:
        password(config)
        if any(broker.tls for broker in config.parsed_brokers()):
            tls_context(TlsFiles(config.ca_file, config.certificate_file, config.key_file))
    except ConfigError as error:
        yield from (f"[consumer] {problem}" for problem in error.problems)


def _examine_database(
    args: argparse.Namespace, config: ConsumerConfig | None, problems: list[str]
) -> None:
    try:
        engine = make_engine(load_database(args).url)
        require_current(engine)
        told = [problem.words for problem in loader_problems(engine)]
        missing = _missing_classes(Catalogue(engine), config)
        problems += [*told, *(words for words in missing if words not in "\n".join(told))]
    except ConfigError as error:
        problems += error.problems
    except SamError as error:
        problems.append(str(error))


def _missing_classes(catalogue: Catalogue, config: ConsumerConfig | None) -> Iterator[str]:
    """Default classes that the database does not have, or can't load."""
    for subscription in config.subscription if config else ():
        name = subscription.message_class
        view = catalogue.find(name) if name else None
        if name and view is None:
            where = f"[consumer] subscription {subscription.destination}: class {name}"
            yield f"{where}: there is no such view (`sam-db classes` lists them)"
        elif view and view.problem:
            yield f"class {view.name}: {view.problem}"


def _trips(config: ConsumerConfig) -> list[RoundTrip]:
    settings = stomp_settings(config, f"{config.name}-check-{os.getpid()}")
    network = [broker for broker in config.parsed_brokers() if broker.kind == STOMP]
    return [trip for broker in network for trip in round_trips(broker, settings)]


def _unusable(path: Path, what: str) -> Iterator[str]:
    """A directory that is absent is made when it is needed, if its parent allows it."""
    existing = next(each for each in (path, *path.absolute().parents) if each.exists())
    if not existing.is_dir():
        yield f"{what} {path}: {existing} is no directory"
    elif not os.access(existing, os.R_OK | os.W_OK | os.X_OK):
        yield f"{what} {path}: no permission to read and write {existing}"
