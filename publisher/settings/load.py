"""Loads the configuration: the section, and the directories that it leaves open."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, NamedTuple

from sam_pipeline.publisher.settings.config import OF_GROUP, BrokerTable, PublisherConfig
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.log import lazy_logger
from sam_pipeline.schema.net.broker_url import parse_broker, problem_of_target
from sam_pipeline.schema.net.target import Target
from sam_pipeline.schema.settings.files import find_file, no_file_found, state_dir
from sam_pipeline.schema.settings.section import Findings, TomlTable, examine, load

SCRATCH = (
    "_CONDOR_SCRATCH_DIR",
    "SLURM_TMPDIR",
    "PBS_JOBDIR",
    "LSF_TMPDIR",
    "EDG_WL_SCRATCH",
    "OSG_WN_TMP",
)
"""Variables that name the scratch directory of a job."""

JOB = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "_CONDOR_JOB_AD", "JOB_ID")
"""Variables that are set in a job, where TMPDIR also belongs to the job."""

PACKAGE_SPOOL = Path("/var/spool/sam")
"""The default spool of accounts that may write there: the package makes it for a group."""

SIGNED_DESTINATION = "a signature covers the destination: remove them, or signing_key_file"

logger = lazy_logger(__name__)


def load_config(
    path: str | None, flags: Mapping[str, Any], *, no_spool: bool = False
) -> PublisherConfig:
    """The configuration; by default, the spool is that of the package, or in the state directory.

    If the latter is below the scratch directory of a batch job, there is no spool unless one is
    configured: it would be removed with the job. A message that no broker takes is then refused.

    Raises:
        ConfigError: all problems at once.
    """
    config = load(PublisherConfig, path, **flags)
    config = _with_directories(_of_brokers(config, flags), no_spool)
    sets = (config, *config.copies)
    problems = []
    for one in sets:
        for target in one.targets:
            if target.user and (problem := target.problem_of_login()):
                problems.append(f"{one.name} {target}: {problem}")
    if config.broker or config.copy:
        problems += problems_between_keys(config)
    if problems:
        raise ConfigError(problems)
    for key in (one.signing_key_file for one in sets if one.signing_key_file):
        from sam_pipeline.schema.identity.keys import load_signer  # 15 ms

        load_signer(key)
    return config


def examine_config(path: str | None, flags: Mapping[str, Any]) -> Iterator[ConfigKeys]:
    """The configuration, without bad brokers and with defaults for other bad values.

    That of the section, then those of copies without problems.

    Raises:
        ConfigError: the file does not exist, or is not TOML.
    """
    findings = examine(PublisherConfig, path, **flags)
    urls = findings.rejected.get("brokers", findings.values.get("brokers", ()))
    tables, copies = (findings.values.get(name, ()) for name in ("broker", "copy"))
    config = PublisherConfig(
        **{
            **findings.values,
            "brokers": tuple(url for url in urls if problem_of_target(url) is None),
            "broker": tuple(filter(None, tables)),
            "copy": tuple(filter(None, copies)),
        }
    )
    config = _with_directories(_of_brokers(config, flags))
    yield ConfigKeys(config, findings, findings.table, findings.bad, tables)
    numbers = {copy.name: number for number, copy in enumerate(copies, 1) if copy}
    for copy in config.copies:
        table = findings.table.item("copy", numbers[copy.copy_name])
        yield ConfigKeys(copy, findings, table, frozenset(), copy.broker)


class ConfigKeys(NamedTuple):
    """One configuration, that of the section or of a copy, and where its keys are set."""

    config: PublisherConfig
    findings: Findings[PublisherConfig]
    table: TomlTable
    bad: Set[str]
    """The fields with a bad value; a copy that has one is left out as a whole."""
    broker_tables: Sequence[BrokerTable | None]

    def origin(self, key: str) -> str:
        """Where a key is set: `sam.toml:7: [publisher] copy[1] spool`, or a variable."""
        return (self.table if self.config.copy_name else self.findings).locate(key)

    def origin_at(self, broker: object, *keys: str) -> str:
        """Where the first of the keys is set that the table of a broker sets.

        If it sets none of them: where the last one is set outside of the table.
        """
        for number, table in enumerate(self.broker_tables, 1):
            if table and str(table.broker) == str(broker):
                for key in keys:
                    if getattr(table, key, None):
                        return self.table.item("broker", number).locate(key)
        return self.origin(keys[-1])

    def origin_of_file(self, path: Path | None, target: Target) -> str:
        """Where the file for TLS that applies at a broker is named."""
        names = ("ca_file", "crl_file", "certificate_file")
        files = target.tls_files
        key = next((n for n in names if path and getattr(files, n) == path), names[-1])
        return self.origin_at(target.broker, key)


def problems_between_keys(config: PublisherConfig) -> Iterator[str]:
    """Keys that don't go together: of a table and its section, or of a copy and the section."""
    spools: dict[Path, str] = {}
    for one in (config, *config.copies):
        for table in one.broker:
            if table.destinations and one.signing_key_file:
                yield f"{one.name} broker {table.broker}: destinations: {SIGNED_DESTINATION}"
        if one.spool in spools:
            yield f"{one.name} spool: {one.spool} is also the spool of {spools[one.spool]}"
        if one.spool:
            spools[one.spool] = one.name


def advice_without_brokers(path: str | None) -> str:
    """What to do if no broker is configured, and which configuration file was read."""
    file = find_file(path, os.environ)
    read = f"the configuration file is {file}" if file else no_file_found()
    return f"no broker is configured: use --broker, or `brokers` in [publisher]; {read}"


def scratch_of(path: Path) -> str | None:
    """The variable of a scratch directory that contains (or is) this path, if there is one."""
    in_a_job = any(os.environ.get(name) for name in JOB)
    for name in (*SCRATCH, "TMPDIR") if in_a_job else SCRATCH:
        scratch = os.environ.get(name)
        if not scratch or not os.path.isabs(scratch):
            continue
        directory = os.path.realpath(scratch)
        # PBS names the home directory here, unless jobs have a sandbox.
        if name == "PBS_JOBDIR" and directory == os.path.realpath(os.environ.get("HOME") or "/"):
            continue
        below = os.path.realpath(path)
        if below == directory or below.startswith(directory.rstrip("/") + "/"):
            return name
    return None


def _of_brokers(config: PublisherConfig, flags: Mapping[str, Any]) -> PublisherConfig:
    """Only the brokers of the option, if it is given; their tables still apply."""
    if not flags.get("brokers"):
        return config
    named = {str(parse_broker(url)) for url in config.brokers}
    tables = tuple(table for table in config.broker if str(table.broker) in named)
    return config.replace(broker=tables, copy=())


def _with_directories(config: PublisherConfig, no_spool: bool = False) -> PublisherConfig:
    """The configuration with defaults for the directories of state and spools."""
    state = config.state or state_dir(os.environ)
    if config.spool is None and os.access(PACKAGE_SPOOL, os.W_OK):
        config = config.replace(spool=PACKAGE_SPOOL, spool_mode=OF_GROUP)
    spool = config.spool or state / "spool"
    if not (state.is_absolute() and spool.is_absolute()):
        try:
            os.getcwd()
        except OSError:
            logger.warning("no spool: %s is relative, and the working directory was removed", spool)
            return _without_spools(config).replace(state=None, require_broker=True)
    if no_spool:
        return _without_spools(config).replace(state=state)
    main_spool = config.spool or _lasting(spool)
    copies = tuple(
        table.replace(spool=table.spool or _lasting(state / "copies" / table.name / "spool"))
        for table in config.copy
    )
    needs_broker = config.require_broker or main_spool is None
    return config.replace(state=state, spool=main_spool, copy=copies, require_broker=needs_broker)


def _without_spools(config: PublisherConfig) -> PublisherConfig:
    copies = tuple(table.replace(spool=None) for table in config.copy)
    return config.replace(spool=None, copy=copies)


def _lasting(spool: Path) -> Path | None:
    """The default directory of a spool; None, with a warning, if it is removed with a batch job."""
    variable = scratch_of(spool)
    if variable is None:
        return spool
    problem = "no spool: %s is below $%s, which is removed with the job"
    advice = "set `spool` to a permanent directory, or only brokers can take messages"
    logger.warning(f"{problem}; {advice}", spool, variable)
    return None
