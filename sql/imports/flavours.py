"""One name for each kind of service, which GOCDB, CRIC, OSG and the VOs spell differently."""

from __future__ import annotations

from collections.abc import Mapping

DEFAULT_FLAVOURS: Mapping[str, str] = {
    "ARC-CE": "ARC-CE",
    "org.nordugrid.arex": "ARC-CE",
    "CREAM-CE": "CREAM-CE",
    "org.glite.ce.CREAM": "CREAM-CE",
    "GRIDFTP": "GRIDFTP",
    "globus-GRIDFTP": "GRIDFTP",
    "HTCONDOR-CE": "HTCONDOR-CE",
    "org.opensciencegrid.htcondorce": "HTCONDOR-CE",
    "perfSONAR": "perfSONAR",
    "Squid": "Squid",
    "org.squid-cache.Squid": "Squid",
    "SRM": "SRM",
    "SRMv1": "SRM",
    "SRMv2": "SRM",
    "SRMv2.disk": "SRM",
    "WEBDAV": "WEBDAV",
    "WebDAV.disk": "WEBDAV",
    "XROOTD": "XROOTD",
    "eu.egi.readonly.xrootd": "XROOTD",
    "XRootD component": "XROOTD",
    "XRootD origin server": "XROOTD",
    "XRootD.Redirector": "XROOTD",
}
"""The flavour by its name in a feed. Tape services (`SRM.nearline`, `webdav.tape`) keep theirs: the
disks may work while the tapes do not."""


def flavour_names(own: Mapping[str, str]) -> Mapping[str, str]:
    """The flavours by their names in lower case, the default ones and those of a feed."""
    return {name.lower(): flavour for name, flavour in {**DEFAULT_FLAVOURS, **own}.items()}
