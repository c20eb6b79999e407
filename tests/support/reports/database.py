"""A small grid in a database, described in a few lines."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from pathlib import Path

from sqlalchemy import Engine, text

from sam_pipeline.schema.identity.identity import ANONYMOUS
from sam_pipeline.spark_jobs.profiles.file import read_profile
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import Period, day_start
from sam_pipeline.sql.database.engine import make_engine, writing
from tests.services.postgres import as_role
from tests.support.database.with_schema import with_schema

DAY = date(2026, 11, 14)
ONE_DAY = Period(DAY, DAY)
LATER = day_start(DAY + timedelta(days=30))
PROFILE = """
name = "test"
validity_s = "off"
vo = "ops"
[flavours.CE]
metrics = ["ping", "submit"]
[flavours.SRM]
metrics = ["put"]
[functions.compute]
flavours = ["CE"]
[functions.storage]
flavours = ["SRM"]
"""


class Grid:
    """Inserts through the class views, like the consumer; `reporter` is the role of reports."""

    def __init__(self, database: str | Engine) -> None:
        self.engine = with_schema(database) if isinstance(database, str) else database
        url = url_of(self.engine)
        self.loader = make_engine(as_role(url, "loader"))
        self.reporter = make_engine(as_role(url, "reporter"))
        self.reader = make_engine(as_role(url, "reader"))

    def dispose(self) -> None:
        for engine in (self.engine, self.loader, self.reporter, self.reader):
            engine.dispose()

    def endpoint(self, site: str, flavour: str, host: str, **more: str) -> None:
        names = {"siteName": site, "serviceFlavour": flavour, "hostName": host}
        self._insert("serviceEndpoint", {"validFrom": "2026-01-01T00:00:00Z", **names, **more})

    def group(self, site: str, name: str, weight: int | None = None) -> None:
        names = {"siteName": site, "groupName": name, "groupType": "federation"}
        self._insert("siteGroup", {**names, "validFrom": "2026-01-01T00:00:00Z", "weight": weight})

    def downtime(self, start: str, end: str, **more: str) -> None:
        """`start` and `end` are times on the day, hh:mm."""
        kind = {"classification": "SCHEDULED", "severity": "OUTAGE"}
        times = {"startTime": _at(start), "endTime": _at(end)}
        self._insert("downtime", {**times, **kind, **more})

    def result(
        self,
        instance: str,
        time: str,
        status: str,
        *,
        vo: str = "ops",
        day: date = DAY,
        **more: str,
    ) -> None:
        """`instance` is "flavour host metric", `time` hh:mm on the day, `more` its attributes."""
        flavour, host, metric = instance.split()
        names = {"hostName": host, "serviceFlavour": flavour, "metricName": metric, "voName": vo}
        sent = {"metricStatus": status, "timestamp": _at(time, day), "gatheredAt": "wn1"}
        texts = {"summaryData": f"{status} says <{metric}>", "messageId": f"message-{time}"}
        self._insert("metricOutput", {**names, **sent, **texts, **more})

    def _insert(self, view: str, values: Mapping[str, object]) -> None:
        # Without a publisher the database would enter its user, who differs between databases.
        present = {"publisher": ANONYMOUS}
        present |= {name: value for name, value in values.items() if value is not None}
        placeholders = ", ".join(f":{name}" for name in present)
        with writing(self.loader) as connection:
            connection.execute(
                text(f"INSERT INTO {view} ({', '.join(present)}) VALUES ({placeholders})"), present
            )


def url_of(engine: Engine) -> str:
    """The URL of its database, for the owner."""
    if engine.dialect.name == "sqlite":
        return f"sqlite:///{engine.get_execution_options()['sam_file']}"
    return engine.url.render_as_string(hide_password=False)


def profile(directory: Path, *changes: tuple[str, str]) -> Profile:
    """The profile above, with texts replaced."""
    document = PROFILE
    for old, new in changes:
        assert old in document
        document = document.replace(old, new)
    path = directory / "profile.toml"
    path.write_text(document)
    return read_profile(path)


def _at(time: str, day: date = DAY) -> str:
    return f"{day}T{time}:00Z"
