"""Who to call about a site: the newest announced contacts."""

from __future__ import annotations

from sqlalchemy import Connection, text


def contact_of(connection: Connection, site: str) -> str:
    """The contact of a site; empty if none was announced."""
    statement = text("SELECT contact FROM report_site_contact WHERE site = :site")
    return connection.scalar(statement, {"site": site}) or ""


def site_contacts(connection: Connection) -> dict[str, str]:
    """The contacts of all sites that have one."""
    rows = connection.execute(text("SELECT site, contact FROM report_site_contact"))
    return {row.site: row.contact for row in rows}
