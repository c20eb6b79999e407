"""Every command of docs/identity.md works, in the order of the page."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tests.support.commands import RESULT, Answer, Workplace, embedded
from tests.support.page import Page, shell
from tests.support.reports.stored import query

PAGE = Page("docs/identity.md")
(SEE,) = PAGE.texts("sh", "See who sends")
SUGGEST, CHECK = PAGE.texts("sh", "Draft a policy")
(POLICY_TOML,) = PAGE.texts("toml", "Draft a policy")
ENFORCE, REFUSED, REPLAY = PAGE.texts("sh", "Enforce")
(MAKE_KEY,) = PAGE.texts("sh", "Sign")
(SIGN_TOML,) = PAGE.texts("toml", "Sign")
(REVOKE,) = PAGE.texts("sh", "Undo")
(AUDIT,) = PAGE.texts("sh", "See what people did")

NOON = "2026-11-20T12:00:00Z"
ENDPOINT = """\
siteName: SITE-A
hostName: ce01.example.org
serviceFlavour: CE
validFrom: 2026-01-01T00:00:00Z
EOT
"""
CONTACT = f"siteName: SITE-A\ncontact: grid@example.org\ntimestamp: {NOON}\nEOT\n"
KEY = "key:nagios-a"


def test_every_command_does_what_the_page_says(tmp_path: Path) -> None:
    workplace = embedded(tmp_path)
    policy = tmp_path / "publishers.toml"
    account = f"uid:{os.geteuid()}"

    workplace.succeed("sam-publish", "send", "--class", "serviceEndpoint", stdin=ENDPOINT)
    workplace.succeed(*RESULT, "--timestamp", NOON)
    assert drain(workplace).code == 0
    assert account in succeed(workplace, SEE)

    succeed(workplace, SUGGEST)
    configure(workplace, POLICY_TOML)
    succeed(workplace, CHECK)
    workplace.succeed("sam-publish", "send", "--class", "siteContact", stdin=CONTACT)
    assert drain(workplace).code == 0  # it only observes

    succeed(workplace, ENFORCE)
    other = CONTACT.replace("SITE-A", "SITE-B")
    workplace.succeed("sam-publish", "send", "--class", "siteContact", stdin=other)
    assert drain(workplace).code == 65
    assert account in succeed(workplace, REFUSED)
    allowed = policy.read_text().replace("classes = [", 'classes = ["siteContact", ')
    policy.write_text(allowed.replace("sites = [", 'sites = ["SITE-B", '))
    succeed(workplace, REPLAY)
    assert publishers(workplace, "siteContact") == [account, account]

    lines = succeed(workplace, MAKE_KEY)
    rules = 'classes = ["metricOutput"]\nsites = ["SITE-A"]\nsigned = true\n'
    policy.write_text(f'{policy.read_text()}\n[[publisher]]\nname = "nagios-a"\n{lines}{rules}')
    configure(workplace, SIGN_TOML)
    workplace.succeed(*worse(), "--timestamp", NOON)
    assert drain(workplace).code == 0
    assert publishers(workplace, "metricOutput") == [KEY]

    succeed(workplace, REVOKE)
    assert publishers(workplace, "metricOutput") == [account]

    log = succeed(workplace, AUDIT)
    assert "revoke" in log
    assert "replay" in log


def test_the_tests_use_every_command_of_the_page() -> None:
    assert PAGE.unused("sh", "toml") == []


def succeed(workplace: Workplace, script: str) -> str:
    answer = shell(workplace, script)
    assert answer.code == 0, str(answer)
    return answer.out


def drain(workplace: Workplace) -> Answer:
    return workplace.run("sam-consume", "run", "--drain")


def configure(workplace: Workplace, lines: str) -> None:
    """Add the lines to their section of sam.toml."""
    section, keys = re.fullmatch(r"(\[\w+\]\n)(.*)", lines, re.DOTALL).groups()  # type: ignore[union-attr]
    text = (workplace.directory / "sam.toml").read_text()
    assert text.count(section) == 1
    workplace.write("sam.toml", text.replace(section, section + keys))


def worse() -> list[str]:
    """The command that publishes the same result as CRITICAL, which replaces it."""
    return [argument.replace("OK", "CRITICAL") for argument in RESULT]


def publishers(workplace: Workplace, view: str) -> list[str]:
    rows = query(workplace.database, f"SELECT publisher FROM {view}")
    return [row["publisher"] for row in rows]
