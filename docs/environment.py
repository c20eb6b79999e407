"""The environment variables and files of each program, for the man pages; in Markdown."""

from __future__ import annotations

from collections.abc import Mapping

CONFIG = {
    "SAM_CONFIG": "the configuration file, unless `--config` names one",
    "XDG_CONFIG_HOME": "the directory that contains `sam/sam.toml` (default: `~/.config`)",
}
DATABASE = {
    "SAM_DATABASE_URL": "the key `url` of `[database]`",
    "PGPASSWORD, PGPASSFILE, PGSSLMODE": "and the other variables of libpq, for PostgreSQL",
}
STATE = {
    "STATE_DIRECTORY": "the directory of state files, which systemd sets for services",
    "XDG_STATE_HOME": "otherwise the state is in its directory `sam` (default: `~/.local/state`)",
}
PROXIES = {
    "http_proxy, https_proxy, all_proxy, no_proxy": "the proxies to servers, unless the"
    " configuration has one",
}
ENVIRONMENT: Mapping[str, Mapping[str, str]] = {
    "sam-publish": {
        **CONFIG,
        "SAM_PUBLISHER_<KEY>": "any key of `[publisher]`, in capitals, except tables; lists are"
        " separated by commas",
        "SAM_PUBLISHER_PASSWORD, SAM_PUBLISHER_TOKEN, SAM_PUBLISHER_PROXY_PASSWORD": "secrets"
        " that are in no file",
        "CREDENTIALS_DIRECTORY": "the same as credentials of systemd: `sam-publisher-password`,"
        " `sam-publisher-token`, `sam-publisher-proxy-password`",
        "BEARER_TOKEN, BEARER_TOKEN_FILE": "a token, as grid tools leave it",
        **PROXIES,
        **STATE,
    },
    "check_sam_publisher": {**CONFIG, **STATE},
    "check_sam_consumer": {**CONFIG, **STATE},
    "sam-consume": {
        **CONFIG,
        "SAM_CONSUMER_<KEY>": "any key of `[consumer]`, in capitals, except tables; lists are"
        " separated by commas",
        "SAM_CONSUMER_PASSWORD, SAM_CONSUMER_PROXY_PASSWORD": "secrets that are in no file",
        "CREDENTIALS_DIRECTORY": "the same as credentials of systemd: `sam-consumer-password`,"
        " `sam-consumer-proxy-password`",
        **DATABASE,
        **PROXIES,
        **STATE,
        "VISUAL, EDITOR": "the editor of `dead-letter edit`",
    },
    "sam-db": {
        **CONFIG,
        **DATABASE,
        "CREDENTIALS_DIRECTORY": "credentials of systemd: `sam-import-certificate` and"
        " `sam-import-key`, for feeds",
        **PROXIES,
        **STATE,
    },
    "sam-report": {
        **CONFIG,
        "SAM_REPORT_PROFILES": "the key `profiles` of `[report]`, separated by commas",
        "SAM_REPORT_SOURCE": "the key `source` of `[report]`: database, archive or auto",
        "SAM_REPORT_START_TIMEOUT": "the key `start_timeout` of `[report]`",
        **DATABASE,
        **STATE,
        "JAVA_HOME": "the Java runtime of Spark (default: `java` in `$PATH`)",
        "CACHE_DIRECTORY, XDG_CACHE_HOME": "where `warm-up` stores classes",
    },
}

CONFIG_FILES = {
    "./sam.toml, ~/.config/sam/sam.toml, /etc/sam/sam.toml": "the configuration: the first of these"
    " that exists, unless `--config` or `$SAM_CONFIG` names another",
    "conf.d/*.toml": "beside a file named `sam.toml`, its fragments",
}
FILES: Mapping[str, Mapping[str, str]] = {
    "check_sam_publisher": CONFIG_FILES,
    "check_sam_consumer": CONFIG_FILES,
    "sam-publish": {
        **CONFIG_FILES,
        "/var/spool/sam": "the spool that the package makes for the group `sam`",
        "~/.local/state/sam": "otherwise the spool, and which brokers work",
    },
    "sam-consume": {
        **CONFIG_FILES,
        "/var/lib/sam": "the state directory of the service: the state that `status` prints, and"
        " locks",
    },
    "sam-db": {
        **CONFIG_FILES,
        "~/.pgpass": "passwords for PostgreSQL on another host",
        "/var/lib/sam": "the state directory of services: the last documents of feeds, and how far"
        " an import has come",
    },
    "sam-report": {
        **CONFIG_FILES,
        "/etc/sam/critical.toml": "a profile: which metrics count, and how they are judged",
        "/var/lib/sam-report": "the state directory of services: `pages`, `exports`, `archive`",
        "~/.cache/sam": "the classes that `warm-up` has stored",
    },
}
