"""The levels of a report, and the names that identify a thing of each level."""

from __future__ import annotations

SITE = "site"
FUNCTION = "function"
SERVICE = "service"
ENDPOINT = "endpoint"
METRIC = "metric"
GROUP = "group"
NAMES = {
    SITE: ("site",),
    FUNCTION: ("site", "function"),
    SERVICE: ("site", "service_flavour"),
    ENDPOINT: ("site", "service_flavour", "host_name"),
    METRIC: ("site", "service_flavour", "host_name", "metric_name"),
    GROUP: ("group_type", "group_name"),
}
ALL_NAMES = ("site", "service_flavour", "host_name", "metric_name", "function")
# The levels whose seconds are stored, day by day, and the names that they have.
WITH_FIGURES = (SITE, FUNCTION, SERVICE, ENDPOINT)
FIGURE_NAMES = ("site", "service_flavour", "host_name", "function")

SECONDS = ("ok_s", "warning_s", "critical_s", "unknown_s", "missing_s", "downtime_s", "excluded_s")
FIGURES = ("availability", "reliability", *SECONDS)
GROUP_FIGURES = ("availability", "reliability", "sites_expected", "sites_known")
