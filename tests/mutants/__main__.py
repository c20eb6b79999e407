"""Whether the tests notice deliberate errors: `python -m tests.mutants` (or `make mutants`).

For each mutant it runs the tests that the map names for its line, until one fails, and if none does
all tests of its room. `--map` records the map: which tests run the line of which mutant.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import coverage

from tests.mutants.mutant import HERE, Mutant, NotFound, all_mutants
from tests.mutants.recording import SETTINGS
from tests.services.broker import QUICK_START, java_options
from tests.services.host import ServiceHost

ROOT = Path(__file__).parents[2]
MAP = HERE / "map.json"
BEFORE = HERE / "before.json"
"""The mutants that were killed before the tests were made shorter, as far as that is known."""
ROOMS = ("schema", "publisher", "consumer", "sql", "spark_jobs")
LEVELS = ("unit", "integration", "acceptance")
MOST_TESTS = 20
"""Of the tests that run a line, the quickest so many are run first."""
PYTEST = ("-q", "-x", "-p", "no:cacheprovider", "-p", "no:randomly", "--no-header", "--tb=no")
TESTS_S, ROOM_S = 180, 900
"""A run that takes longer counts as failed: the error makes the product wait for ever."""
FAILED = {1, 2, 3}
"""Exit codes of pytest; 4 and 5 say that it did not find the tests."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--map", action="store_true", help="record the map, then stop")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="mutants with this in their name"
    )
    parser.add_argument("--checkout", type=Path, default=ROOT, help="whose product and tests")
    parser.add_argument("--map-file", type=Path, default=MAP)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--learn", action="store_true", help="move the test that killed a mutant to the front"
    )
    args = parser.parse_args()
    mutants = [mutant for mutant in all_mutants() if args.only in mutant.name]
    lost = not_found(mutants, args.checkout)
    if lost:
        print(*lost, sep="\n", file=sys.stderr)
        return 1
    if args.map:
        write_map(args.map_file, record(mutants, args.checkout))
        return 0
    tests_of = json.loads(args.map_file.read_text())
    began = time.monotonic()
    killers = run_all(mutants, tests_of, args.checkout, args.jobs)
    survivors = {name for name, killer in killers.items() if not killer}
    if args.learn:
        for name, killer in killers.items():
            if "::" in killer:
                tests_of[name] = list(dict.fromkeys([killer, *tests_of.get(name, ())]))[:MOST_TESTS]
        write_map(args.map_file, tests_of)
    killed = len(mutants) - len(survivors)
    minutes = (time.monotonic() - began) / 60
    print(f"{killed} of {len(mutants)} killed ({killed / len(mutants):.1%}), {minutes:.0f} minutes")
    before = set(json.loads(BEFORE.read_text()))
    for name in sorted(survivors):
        print(f"survived{', and was killed before' if name in before else ''}: {name}")
    return int(bool(survivors & before))


def not_found(mutants: Iterable[Mutant], root: Path) -> list[str]:
    problems = []
    for mutant in mutants:
        try:
            mutant.mutated(root)
        except (NotFound, SyntaxError, FileNotFoundError) as error:
            problems.append(str(error))
    return problems


def run_all(
    mutants: Sequence[Mutant], tests_of: Mapping[str, Sequence[str]], root: Path, jobs: int
) -> dict[str, str]:
    """Run the tests for each mutant, in copies of the checkout; returns what noticed it, or ""."""
    java_options.extend(QUICK_START)
    waiting: queue.SimpleQueue[Mutant] = queue.SimpleQueue()
    for mutant in mutants:
        waiting.put(mutant)
    killers: dict[str, str] = {}

    def work(copy: Path) -> None:
        while True:
            try:
                mutant = waiting.get_nowait()
            except queue.Empty:
                return
            began = time.monotonic()
            killers[mutant.name] = who = killer(mutant, tests_of.get(mutant.name, ()), copy, root)
            verdict = f"killed by {who}" if who else "SURVIVED"
            print(f"{time.monotonic() - began:5.0f} s  {mutant.name}: {verdict}", flush=True)

    host = ServiceHost()
    try:
        with tempfile.TemporaryDirectory(prefix="sam-mutants-") as directory:
            threads = []
            for number in range(jobs):
                copy = copied(root, Path(directory, str(number), "sam_pipeline"))
                threads.append(threading.Thread(target=work, args=[copy]))
                threads[-1].start()
            for thread in threads:
                thread.join()
    finally:
        host.stop()
    return killers


def copied(root: Path, target: Path) -> Path:
    """A copy of the files under version control, with the brokers of the original."""
    names = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"],
        cwd=root,
        capture_output=True,
        check=True,
    )
    for name in names.stdout.decode().split("\0")[:-1]:
        if (root / name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, target / name, follow_symlinks=False)
    (target / ".cache").symlink_to((root / ".cache").resolve())
    return target


def killer(mutant: Mutant, tests: Sequence[str], copy: Path, root: Path) -> str:
    """The test that noticed the mutant, or "" if none did."""
    path = copy / mutant.file
    path.write_text(mutant.mutated(root))
    folders = [f"tests/{level}/{mutant.room}" for level in LEVELS]
    folders = [folder for folder in folders if (copy / folder).is_dir()]
    tests = [test for test in tests if exists(test, copy)]
    try:
        who = failed_test(copy, tests, TESTS_S) if tests else ""
        if not who and mutant.file.endswith(".sql"):
            dialect = mutant.file.split("/")[1]
            who = failed_test(copy, ["-k", dialect, "tests/integration/sql"], ROOM_S)
        return who or failed_test(copy, ["-n", "2", "--dist", "worksteal", *folders], ROOM_S)
    finally:
        path.write_text((root / mutant.file).read_text())


def exists(test: str, checkout: Path) -> bool:
    """Whether there still is a test of that name: pytest would run none of the others."""
    file, _, name = test.partition("::")
    path, function = checkout / file, name.rpartition("::")[2].partition("[")[0]
    return path.exists() and f"def {function}(" in path.read_text()


def failed_test(copy: Path, arguments: Sequence[str], timeout_s: float) -> str:
    command = [sys.executable, "-m", "pytest", *PYTEST, *arguments]
    try:
        done = subprocess.run(
            command,
            cwd=copy,
            env={**os.environ, "PYTHONPATH": str(copy.parent), "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired:
        return "a test that did not end"
    if done.returncode not in FAILED:
        return ""
    named = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
    return named[1] if named else "an error before the tests"


def record(mutants: Sequence[Mutant], root: Path) -> dict[str, list[str]]:
    """Run all tests, and see which of them run which line, in this process or in a program."""
    with tempfile.TemporaryDirectory(prefix="sam-map-") as name:
        data, settings = Path(name, "data"), Path(name, "settings")
        settings.write_text(
            "[run]\ncore = ctrace\nparallel = true\nsigterm = true\n"
            f"data_file = {data}\ncontext = ${{PYTEST_CURRENT_TEST-}}\ninclude =\n"
            + "".join(f"    {root / room}/*\n" for room in ROOMS)
        )
        command = [sys.executable, "-m", "pytest", "-q", "-n", "3", "--dist", "worksteal"]
        command += ["-p", "tests.mutants.recording", "--cov", f"--cov-config={settings}"]
        command += ["--cov-context=test", "--cov-report="]
        Path(name, "sam_pipeline").symlink_to(root)
        names = {"PYTHONPATH": name, SETTINGS: str(settings)}
        subprocess.run(command, cwd=root, env={**os.environ, **names}, check=False)
        measured = coverage.CoverageData(str(data))  # pytest-cov has combined the files
        measured.read()
        return map_of(mutants, root, measured)


def map_of(
    mutants: Sequence[Mutant], root: Path, measured: coverage.CoverageData
) -> dict[str, list[str]]:
    """The tests that run the line of each mutant; of a constant, those that run its file."""
    found = {}
    for mutant in mutants:
        file = str(root / mutant.file)
        by_line = measured.contexts_by_lineno(file)
        contexts = set(by_line.get(mutant.line(root), ())) - {""}
        contexts = contexts or {name for names in by_line.values() for name in names} - {""}
        # "TEST|run" of pytest-cov; "TEST (call)" of a program, for which it ends with "|".
        tests = {re.sub(r" \(\w+\)\|?$|\|\w*$", "", context) for context in contexts}
        found[mutant.name] = first_ones(tests)
    return found


def first_ones(tests: Iterable[str]) -> list[str]:
    """Unit tests first, which need no server; of each level some of every file."""
    by_file = defaultdict(list)
    for test in sorted(tests):
        by_file[test.partition("::")[0]].append(test)
    ranked = [
        (LEVELS.index(file.split("/")[1]), number, test)
        for file, names in by_file.items()
        for number, test in enumerate(names)
    ]
    return [test for *_, test in sorted(ranked)[:MOST_TESTS]]


def write_map(path: Path, tests_of: Mapping[str, Sequence[str]]) -> None:
    lines = [f"{json.dumps(name)}: {json.dumps(tests)}" for name, tests in tests_of.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    raise SystemExit(main())
