"""A subscription that the configuration drops stays at the broker: the consumer warns of it."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.support.consumer.site import Site, eventually, make_site

GONE, KEPT = "stomp://gone.example.invalid:61613", "stomp://kept.example.invalid:61613"


def warnings(log: Path) -> list[str]:
    return [line for line in log.read_text().splitlines() if "not read any more" in line]


def change(site: Site, old: str, new: str) -> None:
    site.config.write_text(site.config.read_text().replace(old, new))


def test_a_reload_or_restart_that_drops_a_broker_or_destination_warns_once(tmp_path: Path) -> None:
    site = make_site(tmp_path, f"sqlite:///{tmp_path}/sam.db", [GONE, KEPT], "/topic/grid.one")
    log = tmp_path / "log"
    with site.daemon(log=log) as process:
        eventually(lambda: "starting with" in log.read_text())
        change(site, f'"{GONE}", ', "")
        process.send_signal(signal.SIGHUP)
        eventually(lambda: log.read_text().count("starting with") == 2)
    [of_broker] = warnings(log)
    change(site, "/topic/grid.one", "/queue/two")
    with site.daemon(log=log):
        eventually(lambda: "starting with" in log.read_text())
    [of_destination] = warnings(log)
    with site.daemon(log=log):
        eventually(lambda: "starting with" in log.read_text())

    assert f"WARNING sam_pipeline.consumer.sources.stomp.left_behind: broker {GONE}: " in of_broker
    assert f"subscription {site.name}.grid.one" in of_broker
    assert f"broker {KEPT}: /topic/grid.one" in of_destination
    assert warnings(log) == []
