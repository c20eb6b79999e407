"""Version 0001: the road."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, Engine, text

from sql.engine import writing

Row = Mapping[str, object]
STATUSES = ("OK", "WARNING", "UNKNOWN", "CRITICAL")
FIRST = datetime(2026, 10, 30, 22, tzinfo=UTC)
FIGURES = {
    "endpoint_figure": "'S', 'CE', 'ce01.example.org',",
    "service_figure": "'S', 'CE',",
    "function_figure": "'S', 'compute',",
    "site_figure": "'S',",
}


def fill(engine: Engine) -> None:
    with writing(engine) as connection:
        for view, rows in (
            ("metricOutput", _results()),
            ("serviceEndpoint", _endpoints()),
            ("siteGroup", _groups()),
            ("downtime", _downtimes()),
        ):
            for row in rows:
                _insert(connection, view, row)
        _insert(connection, "dead_letter", _dead_letter(connection))
        _report(connection)


def _results() -> Iterator[Row]:
    """Many instances over some days; repeats, worse ones, odd texts, absent parts."""
    for number in range(300):
        yield _result(
            hostName=f"CE{number % 7:02d}.example.org",
            metricName=f"org.sam.M{number % 3}",
            metricStatus=STATUSES[number * 7 % 11 % 4],
            timestamp=_time(FIRST + timedelta(minutes=17 * number)),
            voName=("ops", "atlas", None)[number % 3],
            voFqan=(None, "/ops/Role=lcgadmin")[number % 2],
            gatheredAt=(None, "wn1.example.org", "wn2.example.org")[number % 5 % 3],
            siteName=(None, "S", "T")[number % 4 % 3],
            summaryData=f"result {number}",
            detailsData=(None, f"line 1\nline 2 of {number}")[number % 2],
            messageId=f"m-{number // 10}",
        )
    for status in ("OK", "CRITICAL", "WARNING"):
        yield _result(metricStatus=status, detailsData=f"{status} with details")
    yield _result(metricStatus="CRITICAL", detailsData="too late")
    yield _result(
        timestamp="2019-02-28T23:59:59Z",
        summaryData="'quoted' \"twice\"; DROP TABLE x -- ü € \u202eright to left",
        performanceData="time=3s;30;60",
        **{
            name: f"{name} of an old one"
            for name in (
                "serviceURI",
                "serviceType",
                "metricType",
                "dataType",
                "monitoringHost",
                "role",
                "nagiosName",
                "encrypted",
            )
        },
    )


def _endpoints() -> Iterator[Row]:
    for number in range(7):
        yield {
            "siteName": ("S", "T")[number % 2],
            "hostName": f"ce{number:02d}.example.org",
            "serviceFlavour": "CE",
            "voName": (None, "ops")[number % 2],
            "validFrom": "2026-01-01T00:00:00Z",
            "validTo": (None, "2026-11-01T12:00:00Z", "2026-06-01T00:00:00Z")[number % 3],
            "production": (None, "Y", "N")[number % 3],
            "serviceURI": f"https://ce{number:02d}.example.org/",
            "messageId": "topology",
        }
    yield {
        "siteName": "T",
        "hostName": "ce00.example.org",
        "serviceFlavour": "CE",
        "validFrom": "2026-11-01T12:00:00Z",
        "monitored": "N",
    }


def _groups() -> Iterator[Row]:
    for site, name, kind, weight, end in (
        ("S", "North", "federation", 3, None),
        ("S", "ops", "vo", None, "2026-11-01T00:00:00Z"),
        ("T", "North", "federation", 0, None),
    ):
        yield {
            "siteName": site,
            "groupName": name,
            "groupType": kind,
            "weight": weight,
            "validFrom": "2026-01-01T00:00:00Z",
            "validTo": end,
        }


def _downtimes() -> Iterator[Row]:
    first: Row = {
        "downtimeId": "D1",
        "siteName": "S",
        "hostName": "ce00.example.org",
        "serviceFlavour": "CE",
        "startTime": "2026-10-31T08:00:00Z",
        "endTime": "2026-10-31T10:00:00Z",
        "classification": "SCHEDULED",
        "severity": "OUTAGE",
        "description": "power",
        "timestamp": "2026-10-01T00:00:00Z",
    }
    yield first
    yield {**first, "endTime": "2026-10-31T12:00:00Z", "timestamp": "2026-10-02T00:00:00Z"}
    yield {**first, "downtimeId": "D2", "hostName": None, "serviceFlavour": None}
    yield {**first, "downtimeId": "D3", "endTime": first["startTime"]}
    yield {**first, "downtimeId": None, "timestamp": None}


def _dead_letter(connection: Connection) -> Row:
    now = FIRST if connection.dialect.name == "postgresql" else int(FIRST.timestamp())
    return {
        "message_id": "m-bad",
        "record_number": 2,
        "message_class": "metricOutput",
        "reason": "bad-status",
        "error": "metricStatus: 'FINE'",
        "headers": "{}",
        "body": b"\x00\xff",
        "received_at": now,
        "changed_at": now,
    }


def _report(connection: Connection) -> None:
    """Two runs of one day, the second of which is published."""
    is_postgresql = connection.dialect.name == "postgresql"

    def stored(moment: datetime) -> str:
        return f"'{moment.isoformat()}'" if is_postgresql else str(int(moment.timestamp()))

    day = datetime(2026, 10, 31, tzinfo=UTC)
    noon, end = day + timedelta(hours=12), day + timedelta(days=1)
    for state in ("superseded", "published"):
        run_id = connection.execute(
            text(
                "INSERT INTO run (report, day, started_at, finished_at, state, results_read,"
                " results_ignored, instances, input_digest, profile, who)"
                f" VALUES ('test', '2026-10-31', {stored(day)}, {stored(noon)}, '{state}', 300,"
                " '{}', 42, 'digest', 'name = \"test\"', 'me') RETURNING run_id"
            )
        ).scalar_one()
        for table, names in FIGURES.items():
            _execute(
                connection,
                f"INSERT INTO {table} VALUES ({run_id}, {names} 99.5, NULL,"
                " 86000, 100, 200, 50, 25, 25, 0)",
            )
        for statement in (
            f"INSERT INTO group_figure VALUES ({run_id}, 'federation', 'North', 99.5, 98, 2, 1)",
            f"INSERT INTO group_site VALUES ({run_id}, 'federation', 'North', 'S', 3)",
            (
                f"INSERT INTO timeline_segment VALUES ({run_id}, 'site', 'S', '', '', '', '',"
                f" {stored(day)}, {stored(noon)}, 'OK')"
            ),
            (
                f"INSERT INTO timeline_segment VALUES ({run_id}, 'site', 'S', '', '', '', '',"
                f" {stored(noon)}, {stored(end)}, 'CRITICAL')"
            ),
        ):
            _execute(connection, statement)
    _execute(connection, f"INSERT INTO published_run VALUES ('test', '2026-10-31', {run_id})")
    _execute(
        connection,
        "INSERT INTO report_change_row (run_id, level, names, old, new, reason)"
        f" VALUES ({run_id}, 'site', '[\"S\"]', '98', '99.5', 'results')",
    )


def _result(**changes: object) -> Row:
    return {
        "hostName": "ce01.example.org",
        "serviceFlavour": "CE",
        "metricName": "org.sam.Twice",
        "metricStatus": "OK",
        "timestamp": "2026-11-01T00:00:00Z",
        "gatheredAt": "wn1.example.org",
        **changes,
    }


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def _insert(connection: Connection, into: str, row: Row) -> None:
    given = {name: value for name, value in row.items() if value is not None}
    places = ", ".join(f":{name}" for name in given)
    connection.execute(text(f"INSERT INTO {into} ({', '.join(given)}) VALUES ({places})"), given)


def _execute(connection: Connection, statement: str) -> None:
    connection.exec_driver_sql(statement, execution_options={"no_parameters": True})
