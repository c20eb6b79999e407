"""The copyright file of a package: our licence, and those of everything bundled with it.

They are read from the metadata and the licence files that pip installed; shared libraries that a
wheel brings along are listed by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from email.message import Message
from email.parser import BytesHeaderParser
from pathlib import Path
from zipfile import Path as ZipPath

from package import Package

Directory = Path | ZipPath
OURS = """\
{name} {version}
{homepage}

License: Apache-2.0, see /usr/share/common-licenses/Apache-2.0 or
https://www.apache.org/licenses/LICENSE-2.0

It bundles:
"""
LICENCE_FILES = ("LICENSE", "LICENCE", "COPYING", "NOTICE", "AUTHORS")
"""What the names of licence files begin with."""


def copyright_of(package: Package) -> str:
    homepage = package.facts["homepage"]
    text = [OURS.format(name=package.name, version=package.version, homepage=homepage)]
    for metadata, files in sorted(bundled(package), key=lambda found: found[0]["Name"].lower()):
        title = f"{metadata['Name']} {metadata['Version']}"
        text.append(f"{'=' * 80}\n{title}\nLicense: {licence_of(metadata)}\n")
        text += [f"{'-' * 40}\n{name}\n\n{content}\n" for name, content in sorted(files.items())]
    libraries = sorted(path.name for path in package.root.glob("opt/**/*.libs/*.so*"))
    if libraries:
        text.append(f"{'=' * 80}\nShared libraries of these wheels: {', '.join(libraries)}\n")
    return "\n".join(text)


def bundled(package: Package) -> Iterator[tuple[Message, dict[str, str]]]:
    """Metadata and licence texts of each distribution in /opt/sam, or in the one file."""
    program = package.root / "usr/bin/sam-publish"
    tops: list[Directory] = [ZipPath(program)] if program.exists() else []
    tops += package.root.glob("opt/*/lib/*/site-packages")
    for top in tops:
        for directory in top.iterdir():
            if directory.name.endswith(".dist-info") and not directory.name.startswith("sam_"):
                metadata = metadata_of(directory)
                # Spark has those of its jars outside of its metadata.
                texts = licence_texts(directory)
                jars = top / metadata["Name"] / "licenses"
                yield metadata, {**texts, **(licence_texts(jars) if jars.is_dir() else {})}


def metadata_of(directory: Directory) -> Message:
    """Its metadata; the one file has none but its name and version, which are its directory's."""
    file = directory / "METADATA"
    if file.exists():
        return BytesHeaderParser().parsebytes(file.read_bytes())
    metadata = Message()
    metadata["Name"], metadata["Version"] = directory.name.removesuffix(".dist-info").split("-")
    return metadata


def licence_texts(directory: Directory) -> dict[str, str]:
    """Texts by name, also of directories inside."""
    texts: dict[str, str] = {}
    for path in directory.iterdir():
        if path.is_dir():
            texts.update(licence_texts(path))
        elif path.name.upper().startswith(LICENCE_FILES):
            texts[f"{directory.name}/{path.name}"] = path.read_bytes().decode(errors="replace")
    return texts


def licence_of(metadata: Message) -> str:
    """The licence by the newest field of metadata that is there; old ones may be whole texts."""
    classifiers = [
        value.rpartition(" :: ")[2]
        for value in metadata.get_all("Classifier", [])
        if value.startswith("License ::")
    ]
    given = metadata["License-Expression"] or metadata["License"] or ", ".join(classifiers)
    return str(given or "see below").splitlines()[0]
