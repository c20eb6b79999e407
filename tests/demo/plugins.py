"""The monitoring plugins that are installed here, with limits for a busy laptop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HOW_TO_GET_THEM = "apt-get install monitoring-plugins-basic"
DIRECTORIES = [
    Path(name)
    for name in (
        "/usr/lib/nagios/plugins",
        "/usr/lib64/nagios/plugins",
        "/usr/lib/monitoring-plugins",
        "/usr/local/libexec/nagios",
    )
]


@dataclass(frozen=True)
class Plugin:
    """A plugin, its arguments, and the name of the metric it measures."""

    metric: str
    path: Path
    arguments: Sequence[str]


KNOWN: Sequence[tuple[str, str, Sequence[str]]] = (
    ("org.nagios.Load", "check_load", ("-w", "30,25,20", "-c", "90,80,70")),
    ("org.nagios.Disk", "check_disk", ("-w", "5%", "-c", "2%", "-p", "/")),
    ("org.nagios.Procs", "check_procs", ("-w", "2000", "-c", "5000")),
    ("org.nagios.Users", "check_users", ("-w", "50", "-c", "100")),
)


def installed_plugins() -> list[Plugin]:
    return [
        Plugin(metric, directory / name, arguments)
        for metric, name, arguments in KNOWN
        for directory in DIRECTORIES
        if (directory / name).exists()
    ]
