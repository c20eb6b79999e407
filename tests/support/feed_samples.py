"""Small exports of CRIC, OSG, a VO and argo-connectors, with the habits of the real ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# CRIC: a storage element whose protocols differ, in the form of core/service.

DOORS: Mapping[str, Any] = {
    "SE-SRM": {
        "endpoint": "srm://se01.example.org:8443",
        "flavour": "SRM",
        "in_report": True,
        "is_monitored": True,
        "state": "ACTIVE",
        "status": "",
    },
    "SE-WEBDAV": {"endpoint": "davs://se01.example.org:2880", "flavour": "WEBDAV", "status": None},
    "SE-XROOTD": {
        "endpoint": "root://xrootd.example.org:1094",
        "flavour": "XROOTD",
        "is_monitored": False,
    },
    "SE-GRIDFTP": {
        "endpoint": "gsiftp://old.example.org:2811",
        "flavour": "GRIDFTP",
        "state": "DISABLED",
    },
}
STORAGE: Mapping[str, Any] = {
    "name": "EXAMPLE_SE",
    "type": "SE",
    "rcsite": "EXAMPLE-LCG2",
    "rcsite_state": "ACTIVE",
    "state": "ACTIVE",
    "in_report": True,
    "country": "Exampleland",
    "country_code": "XX",
    "protocols": DOORS,
}
CE: Mapping[str, Any] = {
    "type": "CE",
    "rcsite": "EXAMPLE-LCG2",
    "flavour": "HTCONDOR-CE",
    "endpoint": "ce01.example.org:9619",
    "state": "ACTIVE",
    "status": "production",
    "is_monitored": True,
}
CRIC_DOWNTIME: Mapping[str, Any] = {
    "id": 4711,
    "rc_site": "EXAMPLE-LCG2",
    "start_time": "2026-11-05T08:00:00",
    "end_time": "2026-11-05T12:00:00.250000",
    "create_time": "2026-11-01T09:30:00",
    "classification": "scheduled",
    "severity": "outage",
    "description": "new switches",
    "affected_services": "XRootD, SRM",
}

# OSG: a resource group with a CE, a storage with a door of its own, and what is not in use.


def osg_service(name: str, details: str = "") -> str:
    return f"<Service><ID>1</ID><Name>{name}</Name><Details>{details}</Details></Service>"


def osg_resource(host: str, *services: str, active: str = "True", more: str = "") -> str:
    return (
        f"<Resource><ID>9</ID><Name>{host.upper()}</Name><Active>{active}</Active>"
        f"<Disable>False</Disable><Services>{''.join(services)}</Services>"
        f"<FQDN>{host}</FQDN>{more}</Resource>\n"
    )


def osg_group(name: str, *resources: str, grid: str = "OSG Production Resource") -> str:
    return (
        f"<ResourceGroup><GridType>{grid}</GridType><GroupID>1</GroupID>"
        f"<GroupName>{name}</GroupName><Disable>False</Disable>"
        "<Facility><ID>1</ID><Name>University of Example</Name></Facility>"
        "<Site><ID>1</ID><Name>Example Campus</Name><Country>United States</Country></Site>"
        f"<Resources>{''.join(resources)}</Resources></ResourceGroup>\n"
    )


def osg_contacts(kind: str, *people: str) -> str:
    contacts = "".join(
        f"<Contact><Name>{name}</Name><ContactRank>Primary</ContactRank></Contact>"
        for name in people
    )
    return (
        f"<ContactLists><ContactList><ContactType>{kind}</ContactType>"
        f"<Contacts>{contacts}</Contacts></ContactList></ContactLists>"
    )


def osg_summary(*groups: str) -> str:
    schema = 'xsi:schemaLocation="https://topology.example.org/schema/rgsummary.xsd"'
    space = 'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"'
    declaration = '<?xml version="1.0" encoding="utf-8"?>'
    return f"{declaration}\n<ResourceSummary {space} {schema}>{''.join(groups)}</ResourceSummary>"


def osg_downtime(**fields: str) -> str:
    values = {
        "ID": "1005710",
        "StartTime": "Nov 05, 2026 13:00 PM UTC",
        "EndTime": "Nov 06, 2026 00:30 AM UTC",
        "Class": "SCHEDULED",
        "Severity": "Outage",
        "CreatedTime": "Not Available",
        "Description": "New switches",
        **fields,
    }
    elements = "".join(f"<{name}>{value}</{name}>" for name, value in values.items())
    group = "<ResourceGroup><GroupName>EXAMPLE_T2</GroupName><GroupID>1</GroupID></ResourceGroup>"
    services = f"<Services>{osg_service('CE')}{osg_service('WebDAV')}</Services>"
    host = "<ResourceName>EXAMPLE_CE</ResourceName><ResourceFQDN>ce.example.edu</ResourceFQDN>"
    return f"<Downtime>{group}{host}{elements}{services}</Downtime>\n"


def osg_downtimes(*future: str, past: str = "") -> str:
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<Downtimes>'
        f"<PastDowntimes>{past}</PastDowntimes>\n<CurrentDowntimes></CurrentDowntimes>\n"
        f"<FutureDowntimes>\n{''.join(future)}</FutureDowntimes></Downtimes>"
    )


OSG_GROUP_YAML = """\
Production: true
GroupID: 42
Resources:
  EXAMPLE_CE:
    Active: true
    FQDN: ce.example.edu
    Services:
      CE:
        Description: Compute Element
"""
OSG_DOWNTIME_YAML = """\
- Class: UNSCHEDULED
  ID: 017
  Description: Power & cooling
  Severity: Severe
  StartTime: Mar 28, 2026 22:00 -0500
  EndTime: Mar 30, 2026 9:00 +0000
  CreatedTime: Mar 28, 2026 22:10 -0500
  ResourceName: EXAMPLE_CE
  Services:
  - CE
# ---------------------------------------------------------
"""

# argo-connectors: its two tables.

ARGO_TOPOLOGY = """\
Service Unique ID,URL,SERVICE_TYPE,SITENAME-SERVICEGROUP,COUNTRY_NAME,CONTACT_EMAIL,Status
t_1,https://files.example.eu/,nextcloud,Files,Greece,b@example.eu,Production
t_2,https://dev.example.eu:8443/x,nextcloud,Files,Greece,a@example.eu,Development
,,,,,,
"""
ARGO_DOWNTIMES = """\
unique_id,url,start_time,end_time,service_type,Severity,Description
t_1,https://files.example.eu/,2/3/2026 8:00,2/4/2026 19:00,nextcloud,OUTAGE,"disks, all of them"
t_1,https://files.example.eu/,3/1/2026 8:00,3/1/2026 9:30,nextcloud,OUTAGE,
"""

# A VO: sites with two names, one without, and groups of groups.

VO_FEED = """\
<?xml version="1.0" encoding="ISO-8859-1"?>
<root>
  <title>Café</title><version>2</version><vo>cms</vo>
  <atp_site name="EXAMPLE-LCG2" contact="José">
    <service hostname="ce01.example.org" flavour="HTCONDOR-CE" endpoint="ce01.example.org:9619">
      <ce_resource queue="default"/>
    </service>
    <service hostname="se01.example.org" flavour="SRM" production_status="False" rse="X"/>
    <group name="Tier-2" type="CMS_Tier"/>
    <group name="T2_XX_Example" type="CMS_Site"/>
    <group name="T2_XX_Example" type="Tier3s + Tier2s"/>
    <group name="T2_XX_Example:X" type="GGUS_Site"/>
  </atp_site>
  <atp_site name="">
    <service hostname="xrootd.example.edu" flavour="XROOTD"/>
    <group name="T3_XX_Other" type="CMS_Site"/>
  </atp_site>
</root>
"""
