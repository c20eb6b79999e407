"""Reads the targets of a profile: those of the report, of groups and of single sites."""

from __future__ import annotations

from fractions import Fraction

from sam_pipeline.spark_jobs.profiles.keys import names
from sam_pipeline.spark_jobs.profiles.problems import Problems, Table
from sam_pipeline.spark_jobs.profiles.profile import Group
from sam_pipeline.spark_jobs.rules.figures import Targets

_TARGETS, _GROUPS, _SITES = "targets", "groups", "sites"
_OF_GROUP = vars(Targets())
_OF_SITE = [name for name in _OF_GROUP if name != "coverage"]


class TargetReader:
    """Reads [targets] of one document."""

    def __init__(self, document: Table, problems: Problems) -> None:
        self._problems = problems
        self._table = problems.table(document, _TARGETS)
        problems.unknown_keys(self._table, names(_TARGETS), (_TARGETS,))

    def everywhere(self) -> Targets:
        """The targets of all sites and groups that have none of their own."""
        return Targets(
            **{
                name: self._problems.percentage(self._table, (_TARGETS, name), default)
                for name, default in _OF_GROUP.items()
            }
        )

    def of_groups(self) -> dict[Group, dict[str, Fraction]]:
        """The tables [targets.groups.TYPE.NAME]."""
        types = self._problems.tables(self._table, _TARGETS, _GROUPS)
        targets = {}
        for group_type in types:
            path = (_TARGETS, _GROUPS, group_type)
            for name, table in self._problems.tables(types, *path).items():
                self._problems.unknown_keys(table, _OF_GROUP, (*path, name))
                targets[group_type, name] = self._own(table, *path, name)
        return targets

    def of_sites(self) -> dict[str, dict[str, Fraction]]:
        """The tables [targets.sites.NAME]."""
        targets = {}
        for site, table in self._problems.tables(self._table, _TARGETS, _SITES).items():
            self._problems.unknown_keys(table, _OF_SITE, (_TARGETS, _SITES, site))
            targets[site] = self._own(table, _TARGETS, _SITES, site)
        return targets

    def _own(self, table: Table, *path: str) -> dict[str, Fraction]:
        return {
            name: self._problems.percentage(table, (*path, name), Fraction())
            for name in _OF_GROUP
            if name in table
        }
