"""What each exit code of a program means: for the tables of these pages, and for the man pages.

The texts are Markdown.
"""

from __future__ import annotations

from collections.abc import Mapping

from sam_pipeline.schema.program import command

EXIT_CODES: Mapping[str, Mapping[int, str]] = {
    "sam-publish": {
        command.OK: "published, or stored in the spool",
        command.USAGE: "usage error",
        command.BAD_DATA: "some records were refused, and the others sent; or the destination was"
        " refused, and nothing sent; `load-test`: the broker lost messages",
        command.NO_INPUT: "an input file is missing; `spool`: no such element",
        command.UNAVAILABLE: "not stored: no broker took it, and no spool is configured; or the"
        " clock was never set",
        command.BUG: "a bug: please report it",
        command.CANNOT_CREATE: "not stored: no broker took it, and the spool cannot be written",
        command.IO_ERROR: "not stored: no broker took it, and the spool is full; or published, but"
        " standard output could not be written",
        command.TRY_LATER: "no broker took it, with `--require-broker` or in a batch job; `spool`:"
        " other processes have locked elements",
        command.NO_PERMISSION: "not stored: no broker took it, and the spool belongs to another"
        " user; `spool drain`: elements of another user are left; the named configuration cannot be"
        " read",
        command.CONFIG: "configuration error",
        command.INTERRUPTED: "interrupted",
        command.TERMINATED: "terminated: what was read is published or in the spool; `run` killed"
        " the plugin and published its result (other signals: 128 and their number)",
    },
    "sam-consume": {
        command.OK: "stopped on request; or drained, and every record is a row, or with `--to`"
        " every message was moved",
        command.USAGE: "usage",
        command.BAD_DATA: "drained or replayed: there are new dead letters, or some failed again;"
        " or the brokers of `--to` rejected messages",
        command.NO_INPUT: "`dead-letter`: no letter has that id, or `edit --body`: no such file;"
        " `find`: a message was never seen",
        command.UNAVAILABLE: "a broker or the database was away longer than `--timeout`, or a"
        " spool or some of its elements could not be used for so long; the name"
        " runs already; the clock was never set; a package is missing; `subscription delete`: the"
        " broker cannot be reached",
        command.BUG: "a bug: please report it",
        command.CANNOT_CREATE: "the state directory or a spool cannot be created",
        command.IO_ERROR: "the state directory, a spool or standard output cannot be written",
        command.NO_PERMISSION: "the database refuses the login, or the role may not do this; the"
        " named configuration cannot be read; `subscription delete`: the subscription is in use or"
        " configured, or the broker refuses",
        command.CONFIG: "configuration; no such database, or an [unsupported](upgrade.md) schema",
        command.INTERRUPTED: "interrupted (the daemon stops in order, with 0)",
    },
    "sam-db": {
        command.OK: "success; of `check` and `repair`: no problem remains",
        command.USAGE: "usage error: an unknown option, class or version, or a wrong value",
        command.BAD_DATA: "`import`: some records, lines or files were bad; the others are stored."
        " Nothing of a feed is, if it is bad or incomplete. `audit`: the log was changed."
        " `archive`: a version is damaged",
        command.NO_INPUT: "no such file to import, or no downtime or publisher has that id or name;"
        " `archive`: the day is not in the archive",
        command.UNAVAILABLE: "the database, the server of a feed or the archive cannot be reached,"
        " or a package is missing",
        command.BUG: "a bug: please report it",
        command.CANNOT_CREATE: "the SQLite file, or the files of a feed, cannot be created",
        command.IO_ERROR: "the disk of the database or of the archive is full, or standard output"
        " could not be written",
        command.TRY_LATER: "another import of the feed is running; `archive`: another program wrote"
        " the same version",
        command.NO_PERMISSION: "the database refuses the login, or the role may not do this; the"
        " server of a feed or the archive refuses us; the named configuration cannot be read",
        command.CONFIG: "configuration error; a missing database, an [unsupported](upgrade.md)"
        " schema; a problem remains",
        command.INTERRUPTED: "interrupted; `import` resumes if the command is repeated",
    },
    "sam-report": {
        command.OK: "success, also if a day has no data or nothing is due",
        command.USAGE: "usage error: a day in the future, an unknown report or site, a frozen day",
        command.NO_INPUT: "no such profile, or no exclusion has that id",
        command.UNAVAILABLE: "Java or a package is missing, Spark did not start, found no worker or"
        " failed, or the database cannot be reached",
        command.BUG: "a bug: please report it",
        command.CANNOT_CREATE: "a file cannot be created",
        command.IO_ERROR: "the disk of the database, of the files or of Spark is full, or standard"
        " output could not be written",
        command.TRY_LATER: "a later run of the same day was published first: try again",
        command.NO_PERMISSION: "the database refuses the login, or the role may not do this; the"
        " named configuration cannot be read",
        command.CONFIG: "configuration error: a bad profile, a missing database, an"
        " [unsupported](upgrade.md) schema, results of several VOs",
        command.INTERRUPTED: "interrupted",
        command.TERMINATED: "`run` was terminated by SIGTERM",
    },
}
