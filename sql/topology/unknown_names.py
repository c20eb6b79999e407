"""Names that never occur together in the topology, perhaps by a typing error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sam_pipeline.schema.program.wording import did_you_mean, plural

_LABELS = {"siteName": "site", "hostName": "host", "serviceFlavour": "flavour"}

EXAMPLES = 3
"""How many downtimes without an endpoint a warning names."""


def not_in_topology(names: Mapping[str, str], topology: Iterable[Mapping[str, str]]) -> str | None:
    """A warning with the nearest known name if no endpoint has all of the names that are given.

    `names` and the endpoints have the keys siteName, hostName and serviceFlavour, and the endpoints
    perhaps gridSite, which also matches the site; others do not matter.
    """
    endpoints, path = list(topology), []
    for key, label in _LABELS.items():
        if key not in names:
            continue
        keys = ("siteName", "gridSite") if key == "siteName" else (key,)
        known = {endpoint[k] for endpoint in endpoints for k in keys if k in endpoint}
        endpoints = [e for e in endpoints if names[key] in [e.get(k) for k in keys]]
        path.append(f"{label} {names[key]}")
        if not endpoints:
            hint = did_you_mean(names[key], known)
            return f"{' with '.join(path)} is not in the topology{hint and f': {hint}'}"
    return None


def without_endpoints(
    downtimes: Iterable[Mapping[str, str]], topology: Iterable[Mapping[str, str]]
) -> str:
    """A warning about the downtimes that apply to no endpoint, with examples; "" if all apply.

    Both have the keys of `not_in_topology`, and downtimes also downtimeId.
    """
    endpoints = list(topology)
    known = {
        (site, host, flavour)
        for endpoint in endpoints
        for site in ("", endpoint["siteName"], endpoint.get("gridSite", ""))
        for host in ("", endpoint["hostName"])
        for flavour in ("", endpoint["serviceFlavour"])
    }
    unmatched: set[tuple[str, ...]] = set()
    for downtime in downtimes:
        site, host, flavour = (downtime.get(key, "") for key in _LABELS)
        if (site, host, flavour) not in known:
            unmatched.add((site, host, flavour, downtime.get("downtimeId", "")))
    if not unmatched:
        return ""
    # Those of a known host come first: their flavour or site probably has another name here. Others
    # may be of sites that no report needs.
    hosts = {endpoint["hostName"] for endpoint in endpoints}
    in_order = sorted(unmatched, key=lambda names: (names[1] not in hosts, names))
    examples = []
    for *names, downtime_id in in_order[:EXAMPLES]:
        given = {key: name for key, name in zip(_LABELS, names, strict=True) if name}
        which = f"downtime {downtime_id}: " if downtime_id else ""
        examples.append(f"{which}{not_in_topology(given, endpoints)}")
    more = len(unmatched) - len(examples)
    return (
        f"{plural(len(unmatched), 'downtime')} without an endpoint in the topology:"
        f" {'; '.join(examples)}{f'; and {more} more' if more else ''}"
    )
