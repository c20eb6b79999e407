"""The packages: the rooms, installed below `sam_pipeline`; pyproject.toml has everything else."""

from setuptools import find_namespace_packages, setup

ROOMS = ("schema", "publisher", "sql", "consumer", "spark_jobs")

folders = find_namespace_packages(
    include=[pattern for room in ROOMS for pattern in (room, f"{room}.*")],
    exclude=["*.__pycache__"],
)
# Not installed by their own names: `schema` and `sql` are names of other projects.
setup(
    packages=[f"sam_pipeline.{folder}" for folder in folders],
    package_dir={"sam_pipeline": "."},
)
