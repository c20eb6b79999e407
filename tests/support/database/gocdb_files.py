"""Documents in the format of GOCDB's programmatic interface, and some of what nobody reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

DECLARATION = '<?xml version="1.0" encoding="UTF-8"?>\n'
START, END = 1_763_971_200, 1_763_985_600


def service_endpoint(
    host: str = "ce01.example.org",
    flavour: str = "CE",
    site: str = "EXAMPLE-LCG2",
    production: str = "Y",
    monitored: str = "Y",
    url: str = "",
    key: str = "101G0",
) -> str:
    """An element of get_service_endpoint."""
    return f"""  <SERVICE_ENDPOINT PRIMARY_KEY="{key}">
    <PRIMARY_KEY>{key}</PRIMARY_KEY>
    <HOSTNAME>{escape(host)}</HOSTNAME>
    <BETA>N</BETA>
    <SERVICE_TYPE>{escape(flavour)}</SERVICE_TYPE>
    <CORE/>
    <IN_PRODUCTION>{production}</IN_PRODUCTION>
    <NODE_MONITORED>{monitored}</NODE_MONITORED>
    <SITENAME>{escape(site)}</SITENAME>
    <ROC_NAME>NGI_SI</ROC_NAME>
    <URL>{escape(url)}</URL>
    <ENDPOINTS><ENDPOINT>
      <URL>inner.example.org:1</URL><ENDPOINT_MONITORED>N</ENDPOINT_MONITORED>
    </ENDPOINT></ENDPOINTS>
    <SCOPES><SCOPE>EGI</SCOPE></SCOPES>
  </SERVICE_ENDPOINT>
"""


def site(
    name: str = "EXAMPLE-LCG2",
    ngi: str = "NGI_SI",
    scopes: Sequence[str] = ("EGI", "tier2"),
    more: str = "",
) -> str:
    """An element of get_site; `more` are further elements in it."""
    tags = "".join(f"<SCOPE>{escape(scope)}</SCOPE>" for scope in scopes)
    return f"""  <SITE ID="14" PRIMARY_KEY="14G0" NAME={quoteattr(name)}>
    <PRIMARY_KEY>14G0</PRIMARY_KEY>
    <SHORT_NAME>{escape(name)}</SHORT_NAME>
    <OFFICIAL_NAME>A site</OFFICIAL_NAME>
    <ROC>{escape(ngi)}</ROC>
    <SCOPES>{tags}</SCOPES>{more}
  </SITE>
"""


def listed_site(name: str = "EXAMPLE-LCG2", ngi: str = "NGI_SI") -> str:
    """An element of get_site_list."""
    names = f"NAME={quoteattr(name)} ROC={quoteattr(ngi)}"
    return f'  <SITE ID="14" PRIMARY_KEY="14G0" {names} COUNTRY_CODE="SI" SUBGRID=""/>\n'


def downtime(
    key: str = "5001G0",
    start: int = START,
    end: int = END,
    host: str = "ce01.example.org",
    flavour: str = "CE",
    site: str = "EXAMPLE-LCG2",
    severity: str = "OUTAGE",
    description: str = "new switches",
) -> str:
    """An element of get_downtime: one for each service."""
    inner = _service(host, flavour, site) + _times(start, end, severity, description)
    return _downtime(key, inner)


def nested_downtime(
    *services: tuple[str, str],
    key: str = "5001G0",
    start: int = START,
    end: int = END,
    site: str = "EXAMPLE-LCG2",
) -> str:
    """An element of get_downtime_nested_services; `services` are hosts and flavours."""
    inner = "".join(f"<SERVICE>{_service(*service, site)}</SERVICE>" for service in services)
    times = _times(start, end, "OUTAGE", "new switches")
    return _downtime(key, f"{times}<SERVICES>{inner}</SERVICES>")


def document(*elements: str) -> str:
    return f"{DECLARATION}<results>\n{''.join(elements)}</results>\n"


def page(*elements: str) -> str:
    """Like `document`, with the links of a paged answer in front."""
    links = '<meta><link rel="self" href="https://gocdb.example.org/?next_cursor=0"/></meta>\n'
    return document(links, *elements)


def write(path: Path, *documents: str) -> Path:
    path.write_text("".join(documents))
    return path


def endpoint_elements(numbers: Iterable[int]) -> list[str]:
    return [service_endpoint(host=f"h{number}.example.org") for number in numbers]


def _downtime(key: str, inner: str) -> str:
    head = f'<DOWNTIME ID="5001" PRIMARY_KEY="{key}" CLASSIFICATION="SCHEDULED">'
    return f"  {head}<PRIMARY_KEY>{key}</PRIMARY_KEY>\n{inner}\n  </DOWNTIME>\n"


def _service(host: str, flavour: str, site: str) -> str:
    return f"""<HOSTNAME>{escape(host)}</HOSTNAME><SERVICE_TYPE>{escape(flavour)}</SERVICE_TYPE>
<ENDPOINT>{escape(host)}{escape(flavour)}</ENDPOINT><HOSTED_BY>{escape(site)}</HOSTED_BY>"""


def _times(start: int, end: int, severity: str, description: str) -> str:
    return f"""<SEVERITY>{severity}</SEVERITY><DESCRIPTION>{escape(description)}</DESCRIPTION>
<START_DATE>{start}</START_DATE><END_DATE>{end}</END_DATE>
<FORMATED_START_DATE>2025-11-24 09:00</FORMATED_START_DATE>
<FORMATED_END_DATE>2025-11-24 13:00</FORMATED_END_DATE>"""
