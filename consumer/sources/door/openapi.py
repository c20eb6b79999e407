"""The OpenAPI document of the door, which describes its requests and their answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sam_pipeline.consumer.sources.door.answers import JSON, PROBLEM
from sam_pipeline.schema.records.classes import BUILT_IN

NDJSON = "application/x-ndjson"

STATUSES: Mapping[int, str] = {
    400: "The request is malformed.",
    401: "Credentials are required, or these are unknown.",
    403: "The policy does not allow this sender to send this.",
    404: "There is nothing at this path.",
    405: "This path has other methods; `Allow` names them.",
    408: "The request arrived too slowly.",
    411: "The request has a body of unknown length.",
    413: "The body is too large.",
    414: "The request line is too long.",
    415: "The content type or the content coding is not supported.",
    417: "The expectation is unknown; only `100-continue` is supported.",
    422: "A record can't be read; nothing of the message was stored.",
    429: "The inbox is full, or the sender exceeds its rate; repeat it after `Retry-After`.",
    431: "The headers are too large.",
    503: "Messages can't be stored now; repeat it after `Retry-After`.",
    504: "The message was not stored in time; repeat it with the same id.",
}
"""The statuses of problems, with what they mean to the sender."""

_TEXT = {"type": "string"}
_BYTES = {**_TEXT, "format": "binary"}
_COUNT = {"type": "integer", "minimum": 0}

_SCHEMAS: Mapping[str, Any] = {
    "Record": {
        "description": "The keys of a class with their values; null is like an absent key.",
        "type": "object",
        "additionalProperties": {"type": ["string", "number", "boolean", "null"]},
        "examples": [
            {
                "hostName": "ce01.example.org",
                "serviceFlavour": "CE",
                "metricName": "org.sam.CE-JobSubmit",
                "metricStatus": "OK",
                "timestamp": "2026-11-20T12:00:00Z",
            }
        ],
    },
    "Message": {
        "description": "A whole message, in the form of an element of a directory queue.",
        "type": "object",
        "properties": {
            "header": {"type": "object", "additionalProperties": _TEXT},
            "body": _TEXT,
            "text": {"type": "boolean"},
            "encoding": {**_TEXT, "examples": ["base64"]},
        },
    },
    "DeadLetter": {
        "description": "A record that can never be loaded; `number` is its position, from 1.",
        "type": "object",
        "required": ["number", "reason", "text"],
        "properties": {
            "number": {"type": ["integer", "null"]},
            "reason": {**_TEXT, "examples": ["missing-key"]},
            "text": _TEXT,
        },
    },
    "Loaded": {
        "description": "The message is in the database, its bad records as dead letters.",
        "type": "object",
        "required": ["messageId", "rows", "duplicates", "deadLetters"],
        "properties": {
            "messageId": _TEXT,
            "rows": _COUNT,
            "duplicates": _COUNT,
            "deadLetters": {"type": "array", "items": {"$ref": "#/components/schemas/DeadLetter"}},
        },
    },
    "Stored": {
        "description": "A broker has confirmed the message, or it is synced to the disk.",
        "type": "object",
        "required": ["messageId", "stored"],
        "properties": {"messageId": _TEXT, "stored": {**_TEXT, "enum": ["broker", "spool"]}},
    },
    "Problem": {
        "description": "Why a message was not taken (RFC 9457).",
        "type": "object",
        "required": ["type", "title", "status"],
        "properties": {
            "type": {**_TEXT, "format": "uri-reference"},
            "title": _TEXT,
            "status": {"type": "integer"},
            "detail": _TEXT,
            "messageId": _TEXT,
            "record": {"type": "integer"},
            "reason": _TEXT,
            "key": _TEXT,
            "value": _TEXT,
        },
    },
}


def openapi_document() -> dict[str, Any]:
    """The document, which is the same for all configurations."""
    activemq, nrdp = _activemq_form(), _nrdp()
    flavour = {"name": "flavour", "in": "path", "required": True, "schema": _TEXT}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Messages over HTTP",
            "version": "1",
            "description": (
                "A 2xx means that the message is kept: committed, confirmed by a broker, or synced"
                " to the disk. After any other answer, or none, the sender keeps it and may repeat"
                " it with the same id, which stores nothing twice."
            ),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}, {"certificate": []}, {}],
        "paths": {
            "/v1/messages/{class}": {"post": _message()},
            "/v1/messages": {"post": _messages()},
            "/api/message/{destination}": {
                "post": {"operationId": "postActivemqMessage", **activemq},
                "put": {"operationId": "putActivemqMessage", **activemq},
            },
            "/nrdp/": {
                "post": {"operationId": "postNrdp", **nrdp},
                "get": {"operationId": "getNrdp", **_nrdp_in_url()},
            },
            "/nrdp/{flavour}/": {
                "post": {"operationId": "postNrdpOfFlavour", "parameters": [flavour], **nrdp},
                "get": {"operationId": "getNrdpOfFlavour", **_nrdp_in_url(flavour)},
            },
            "/healthz": {"get": _document("getHealth", "Whether the door is open.")},
            "/readyz": {
                "get": _document(
                    "getReadiness", "Whether a message would be stored at once.", 429, 503
                )
            },
            "/v1/openapi.json": {"get": _document("getOpenapi", "This document.")},
        },
        "components": {
            "schemas": _SCHEMAS,
            "responses": {
                str(status): _answer(text, PROBLEM, _schema("Problem"))
                for status, text in STATUSES.items()
            },
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "certificate": {"type": "mutualTLS"},
            },
        },
    }


def _message() -> dict[str, Any]:
    records = {"type": "array", "items": _schema("Record")}
    text = {**_TEXT, "description": "Records as WLCG text; `key: value` lines, then `EOT`."}
    lines = {**_TEXT, "description": "One `Record` per line; also as `application/x-ndjson`."}
    classes = {**_TEXT, "examples": [item.name for item in BUILT_IN.values()]}
    return {
        "operationId": "postMessage",
        "summary": "Send the records of one message.",
        "parameters": [
            {"name": "class", "in": "path", "required": True, "schema": classes},
            _header("Sam-Message-Id", "The id of the message; default: a hash of its content."),
            _header("Idempotency-Key", "The same, for clients that have this header."),
            _header("Sam-Record-Count", "How many records the message has."),
            _header("Sam-Format", "The format of the records; default: WLCG."),
            _header("Sam-Rename", "Our names of foreign keys: `theirs=ours,…`."),
            _header("Nagios-Host", "The monitoring host of records that name none."),
            _header("Sam-Destination", "The topic or queue of a broker behind the door."),
            _header("Sam-Key", "The name of the key that has signed the message."),
            _header("Sam-Signed-At", "When it was signed."),
            _header("Sam-Signature", "The signature."),
            _CONTENT_ENCODING,
        ],
        "requestBody": {
            "required": True,
            "content": {
                JSON: {"schema": {"oneOf": [_schema("Record"), records]}},
                "text/plain": {"schema": text},
                "application/jsonl": {"schema": lines},
            },
        },
        "responses": {
            "200": _answer("Committed.", JSON, _schema("Loaded")),
            "202": _answer("Confirmed by a broker, or spooled.", JSON, _schema("Stored")),
            **_problems(*STATUSES),
        },
    }


def _messages() -> dict[str, Any]:
    lines = {**_BYTES, "description": "One `Message` per line."}
    answers = {
        **_BYTES,
        "description": "In order, one line per message: its `status` (200, 202, or that of a"
        " `Problem`) and the members of `Loaded`, `Stored` or `Problem`.",
    }
    return {
        "operationId": "postMessages",
        "summary": "Send many messages; each has its own answer.",
        "parameters": [_CONTENT_ENCODING],
        "requestBody": {"required": True, "content": {NDJSON: {"schema": lines}}},
        "responses": {
            "200": _answer("One line per message.", NDJSON, answers),
            **_problems(*STATUSES),
        },
    }


def _activemq_form() -> dict[str, Any]:
    kinds = {**_TEXT, "enum": ["topic", "queue"]}
    return {
        "summary": "Send a message in the form of ActiveMQ's servlet.",
        "description": "Other parameters of the query become headers of the message.",
        "parameters": [
            {"name": "destination", "in": "path", "required": True, "schema": _TEXT},
            {"name": "type", "in": "query", "schema": kinds},
        ],
        "requestBody": {
            "content": {
                "application/x-www-form-urlencoded": {
                    "schema": {"type": "object", "properties": {"body": _TEXT}}
                },
                "application/octet-stream": {"schema": _BYTES},
            }
        },
        "responses": {
            "200": {
                **_answer("`Message sent`", "text/plain", _TEXT),
                "headers": {"messageID": {"schema": _TEXT}},
            },
            **_problems(*STATUSES),
        },
    }


_NRDP_FIELDS = {
    "token": _TEXT,
    "cmd": {**_TEXT, "enum": ["submitcheck"]},
    "XMLDATA": _TEXT,
    "JSONDATA": _TEXT,
}


def _nrdp_in_url(*more: Mapping[str, Any]) -> dict[str, Any]:
    """What a client sends that puts everything into the URL."""
    parameters = [
        {"name": name, "in": "query", "required": name == "cmd", "schema": schema}
        for name, schema in _NRDP_FIELDS.items()
    ]
    described = {name: value for name, value in _nrdp().items() if name != "requestBody"}
    return {**described, "parameters": [*parameters, *more]}


def _nrdp() -> dict[str, Any]:
    form = {"type": "object", "required": ["cmd"], "properties": _NRDP_FIELDS}
    return {
        "summary": "Submit passive check results, as to NRDP.",
        "requestBody": {
            "required": True,
            "content": {"application/x-www-form-urlencoded": {"schema": form}},
        },
        "responses": {
            str(status): {
                "description": text,
                "content": {"text/xml": {"schema": _TEXT}, JSON: {"schema": {"type": "object"}}},
            }
            for status, text in {200: "The answer of NRDP.", **STATUSES}.items()
        },
    }


def _document(name: str, summary: str, *problems: int) -> dict[str, Any]:
    """A GET without parameters, which needs no credentials."""
    return {
        "operationId": name,
        "summary": summary,
        "security": [{}],
        "responses": {"200": _answer("Yes.", JSON, {"type": "object"}), **_problems(*problems)},
    }


_CONTENT_ENCODING = {
    "name": "Content-Encoding",
    "in": "header",
    "schema": {**_TEXT, "enum": ["gzip", "identity"]},
}


def _header(name: str, description: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "description": description, "schema": _TEXT}


def _schema(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _answer(description: str, content: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {content: {"schema": schema}}}


def _problems(*statuses: int) -> dict[str, Any]:
    return {str(status): {"$ref": f"#/components/responses/{status}"} for status in statuses}
