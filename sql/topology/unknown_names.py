"""Names that never occur together in the topology, probably by a typing error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sam_pipeline.schema.program.wording import did_you_mean

_LABELS = {"siteName": "site", "hostName": "host", "serviceFlavour": "flavour"}


def not_in_topology(names: Mapping[str, str], topology: Iterable[Mapping[str, str]]) -> str | None:
    """A warning with the nearest known name if no endpoint has all of the names that are given.

    `names` and the endpoints have the keys siteName, hostName and serviceFlavour; others do not
    matter.
    """
    endpoints, path = list(topology), []
    for key, label in _LABELS.items():
        if key not in names:
            continue
        known = {endpoint[key] for endpoint in endpoints}
        endpoints = [endpoint for endpoint in endpoints if endpoint[key] == names[key]]
        path.append(f"{label} {names[key]}")
        if not endpoints:
            hint = did_you_mean(names[key], known)
            return f"{' with '.join(path)} is not in the topology{hint and f': {hint}'}"
    return None
