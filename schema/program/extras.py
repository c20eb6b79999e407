"""The optional packages, by the extra of the distribution that installs them."""

from __future__ import annotations

EXTRAS = {
    "archive": ("boto3", "botocore", "numpy", "pyarrow"),
    "consumer": (
        "alembic",
        "defusedxml",
        "prometheus_client",
        "psycopg2",
        "sqlalchemy",
        "urllib3",
        "yaml",
    ),
    "door": ("aiohttp",),
    "reports": ("jinja2", "pandas", "py4j", "pyspark"),
    "sign": ("nacl",),
}


def how_to_install(module: str) -> list[str]:
    """A line with the command that installs a missing module; none if no extra has it."""
    package = module.partition(".")[0]
    return [
        f"{package} is not installed: run pip install '.[{extra}]' in the checkout of sam-pipeline"
        for extra, packages in EXTRAS.items()
        if package in packages
    ]
