"""Keys and signatures: their files, what a signature covers, and when it is refused."""

from __future__ import annotations

import re
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.identity.keys import Signer, make_key, parse_public_key, read_seed
from sam_pipeline.schema.identity.signature import (
    MAX_AHEAD,
    SignatureRefused,
    covered_bytes,
    load_signer,
    sign,
    verify,
)
from sam_pipeline.schema.messages.headers import COVERED
from sam_pipeline.schema.messages.message import (
    CLASS,
    CONTENT_TYPE,
    COUNT,
    DESTINATION,
    KEY_NAME,
    MESSAGE_ID,
    SIGNATURE,
    SIGNED_AT,
    Message,
)
from sam_pipeline.schema.messages.refused import BAD_SIGNATURE, SIGNATURE_EXPIRED

NOW = datetime(2026, 11, 23, 12, 0, 0, tzinfo=UTC)
MAX_AGE = timedelta(days=30)
SECOND = timedelta(seconds=1)
MESSAGE = Message(
    {
        CLASS: "metricOutput",
        MESSAGE_ID: "0660f02567c7f4-57079bb1e042498701",
        DESTINATION: "/topic/grid.probe.metricOutput",
        CONTENT_TYPE: "text/plain; charset=utf-8",
        COUNT: "1",
        "samFormat": "wlcg",
        "samRename": "test=metricName",
        "nagios_host": "nagios1.example.org",
        "nagiosHost": "nagios2.example.org",
        "persistent": "true",
        "X-Other": "anything",
    },
    b"hostName: ce01.example.org\nEOT\n",
)


@pytest.fixture
def signer(tmp_path: Path) -> Signer:
    make_key(tmp_path / "nagios1.pem")
    return load_signer(tmp_path / "nagios1.pem")


def verified(message: Message, signer: Signer, now: datetime = NOW) -> str | None:
    return verify(message, {signer.name: [signer.public_key()]}, now, MAX_AGE)


def reason_of(message: Message, signer: Signer, now: datetime = NOW) -> str:
    with pytest.raises(SignatureRefused) as refusal:
        verified(message, signer, now)
    assert signer.name in refusal.value.text
    return refusal.value.reason


def changed(message: Message, headers: Mapping[str, str], body: bytes | None = None) -> Message:
    return Message({**message.headers, **headers}, message.body if body is None else body)


def test_the_covered_bytes_are_these() -> None:
    """Other programs sign as well: the form of the bytes is an interface."""
    signed = changed(MESSAGE, {SIGNED_AT: "2026-11-23T12:00:00Z"})

    assert covered_bytes(signed).decode().split("\n") == [
        "sam-sig-1",
        "metricOutput",
        "grid.probe.metricOutput",
        "0660f02567c7f4-57079bb1e042498701",
        "2026-11-23T12:00:00Z",
        "content-type:text/plain; charset=utf-8",
        "nagiosHost:nagios2.example.org",
        "nagios_host:nagios1.example.org",
        "recordCount:1",
        "samFormat:wlcg",
        "samRename:test=metricName",
        "40315690ce7eb2b9fc9046b7d258a6a3b005a203e06c4cb14d4b8cfcabea5cc5",
    ]


def flipped(data: bytes, bits: int = 8) -> Iterator[bytes]:
    """The data with each of its bits flipped, one at a time."""
    for bit in range(bits * len(data)):
        other = bytearray(data)
        other[bit // bits] ^= 1 << bit % bits
        yield bytes(other)


def texts_of(text: str) -> Iterator[str]:
    return (other.decode() for other in flipped(text.encode(), bits=7))


def test_every_flipped_bit_of_a_covered_value_is_noticed(signer: Signer) -> None:
    signed = sign(MESSAGE, signer, NOW)
    signature, name = a2b_base64(signed.headers[SIGNATURE]), "grid.probe.metricOutput"
    headers = [
        *({SIGNATURE: b2a_base64(other, newline=False).decode()} for other in flipped(signature)),
        *({DESTINATION: f"/topic/{other}"} for other in texts_of(name)),
        *(
            {header: other}
            for header in (CLASS, MESSAGE_ID, SIGNED_AT, *COVERED)
            for other in texts_of(signed.headers[header])
        ),
    ]

    others = [Message(signed.headers, body) for body in flipped(signed.body)]
    for message in (*others, *(changed(signed, header) for header in headers)):
        assert reason_of(message, signer) == BAD_SIGNATURE
    for other in texts_of(signed.headers[KEY_NAME]):
        assert verified(changed(signed, {KEY_NAME: other}), signer) is None


def test_a_covered_header_that_was_removed_or_added_is_noticed(signer: Signer) -> None:
    for name in (CLASS, MESSAGE_ID, *COVERED):
        headers = {**MESSAGE.headers}
        added = {name: headers.pop(name)}
        without = sign(Message(headers, MESSAGE.body), signer, NOW)
        for other in (changed(without, added), changed(sign(MESSAGE, signer, NOW), {name: ""})):
            assert reason_of(other, signer) == BAD_SIGNATURE


def test_a_malformed_signature_a_replay_or_a_missing_time_is_bad(signer: Signer) -> None:
    signed = sign(MESSAGE, signer, NOW)
    for text in ("", "A", "AAAA", "no base64 \u00fc", "A" * 400):
        assert reason_of(changed(signed, {SIGNATURE: text}), signer) == BAD_SIGNATURE
    for replay in ({CLASS: "downtime"}, {DESTINATION: "/topic/grid.probe.downtime"}):
        assert reason_of(changed(signed, replay), signer) == BAD_SIGNATURE
    for signed_at in ("", "yesterday", "2026-13-01T00:00:00Z"):
        message = changed(MESSAGE, {KEY_NAME: signer.name, SIGNED_AT: signed_at})
        signature = b2a_base64(signer.sign(covered_bytes(message)), newline=False).decode()
        assert reason_of(changed(message, {SIGNATURE: signature}), signer) == BAD_SIGNATURE


def test_headers_and_forms_that_brokers_change_do_not_matter(signer: Signer) -> None:
    signed = sign(changed(MESSAGE, {"samRename": ""}), signer, NOW)
    headers = {**signed.headers, "X-Other": "changed", "message-id": "ID:1", "timestamp": "1"}
    for name in ("persistent", "samRename"):
        del headers[name]

    for form in ("/queue/{}", "/amq/queue/{}", "/exchange/amq.topic/{}", "{}"):
        destination = {DESTINATION: form.format("grid.probe.metricOutput")}
        assert verified(Message({**headers, **destination}, signed.body), signer) == "nagios1"


def test_no_value_can_pass_for_two_lines() -> None:
    one = changed(MESSAGE, {CLASS: "metricOutput\ngrid.probe.metricOutput", DESTINATION: ""})
    other = changed(MESSAGE, {CLASS: "metricOutput", DESTINATION: "grid.probe.metricOutput\n"})
    literal = changed(one, {CLASS: "metricOutput\\ngrid.probe.metricOutput"})
    assert len({covered_bytes(one), covered_bytes(other), covered_bytes(literal)}) == 3


def test_a_signature_expires_at_the_second_and_is_not_of_the_far_future(signer: Signer) -> None:
    signed = sign(MESSAGE, signer, NOW)

    for age in (MAX_AGE, -MAX_AHEAD):
        assert verified(signed, signer, NOW + age) == "nagios1"
    for age in (MAX_AGE + SECOND, -MAX_AHEAD - SECOND):
        assert reason_of(signed, signer, NOW + age) == SIGNATURE_EXPIRED
    assert reason_of(changed(signed, {SIGNATURE: f"{signed.headers[SIGNATURE]}?"}), signer) == (
        BAD_SIGNATURE
    )
    # A bad one is bad, however old it is.
    assert reason_of(changed(signed, {COUNT: "2"}), signer, NOW + 2 * MAX_AGE) == BAD_SIGNATURE


def test_without_a_key_or_with_an_unknown_one_a_message_is_unsigned(signer: Signer) -> None:
    signed = sign(MESSAGE, signer, NOW)

    assert verified(MESSAGE, signer) is None
    assert verified(changed(signed, {KEY_NAME: ""}), signer) is None
    assert verified(changed(signed, {KEY_NAME: "nagios2"}), signer) is None
    assert verify(signed, {signer.name: []}, NOW, MAX_AGE) is None
    # One that names a known key must have its signature.
    assert reason_of(changed(MESSAGE, {KEY_NAME: signer.name}), signer) == BAD_SIGNATURE


def stored(path: Path, pem: bytes) -> Path:
    path.touch(0o600)
    path.write_bytes(pem)
    return path


def test_a_new_key_is_pkcs8_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "nagios1.pem"
    make_key(path)

    key = load_pem_private_key(path.read_bytes(), None)
    assert isinstance(key, Ed25519PrivateKey)
    assert path.stat().st_mode & 0o777 == 0o600
    spki = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    signer = load_signer(path)
    assert signer.name == "nagios1"
    assert str(signer.public_key()).startswith("ed25519:MCowBQYDK2VwAyEA")
    assert parse_public_key(str(signer.public_key())) == (spki[-32:],)
    before = path.read_bytes()
    with pytest.raises(ConfigError):
        make_key(path)
    assert path.read_bytes() == before  # never overwritten
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="0644"):
        load_signer(path)


def pkcs8(key: Ed25519PrivateKey | RSAPrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def test_a_key_of_other_tools_with_text_around_it_is_read(tmp_path: Path) -> None:
    key = Ed25519PrivateKey.generate()
    text = b"of nagios1\r\n" + pkcs8(key).replace(b"\n", b"\r\n")
    assert read_seed(stored(tmp_path / "nagios1.pem", text)) == key.private_bytes_raw()


def test_a_file_without_a_key_for_signatures_is_refused(tmp_path: Path) -> None:
    key = Ed25519PrivateKey.generate()
    pem = pkcs8(key)
    files = {
        "rsa": pkcs8(generate_private_key(65537, 2048)),
        "public": key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        "short": pem.replace(pem.split(b"\n")[1][8:32], b""),
        "text": b"-----BEGIN PRIVATE KEY-----\nA\n-----END PRIVATE KEY-----\n",
    }
    for name, content in files.items():
        path = stored(tmp_path / f"{name}.pem", content)
        with pytest.raises(ConfigError, match=re.escape(str(path))):
            load_signer(path)


def test_the_name_of_a_key_is_plain_and_its_text_a_public_key(tmp_path: Path) -> None:
    for name in (".pem", "a b.pem", "ключ.pem", "*.pem", "-x.pem"):
        with pytest.raises(ConfigError):
            make_key(tmp_path / name)
    assert not list(tmp_path.iterdir())
    for text in NO_KEYS:
        with pytest.raises(ValueError, match="not a public key"):
            parse_public_key(text)


VALID = "MCowBQYDK2VwAyEAmw+xFCvOwDyKakHlCJraDEznZIGmQvgiynG5fvi+NTA="
NO_KEYS = (
    *("", "ed25519:", "ed25519:\u00fc", VALID, f"rsa:{VALID}", f"ed25519:{VALID[:-2]}"),
    f"ed25519:{VALID.replace('K2Vw', 'K2Vu')}",
)
