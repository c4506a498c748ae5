"""`s3://BUCKET/KEY` -> the store that holds it: S3, Google Cloud Storage and Azure by one way.

Promises: credentials and endpoints come from the environment alone; an address that carries any is refused and
never told; one store a bucket and process.
Knows nothing of: what objects mean.
Memory: a client a bucket.
"""

from __future__ import annotations

import functools
import os
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from rowmill.errors import ConfigError
from rowmill.storage.attempts import Attempts

if TYPE_CHECKING:
    from obstore.store import ObjectStore

SCHEMES = ("s3", "gs", "az")
REQUEST_S = 120
"""Of one request, its body included; segments and ranges are of some MiB."""
BULK_S = 900
"""Of a results file in one request."""
BULK_RETRIES = 4
CONNECT_S = 5

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_AZURE_ENDPOINTS = ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")
_VARIABLES = {"gs": "GOOGLE_", "az": "AZURE_"}
"""What the names of variables that the library reads begin with."""
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")


class Address(NamedTuple):
    """Where an object, or a prefix of objects, is."""

    scheme: str
    bucket: str
    """Azure calls it container."""
    key: str
    """Without a `/` at its end; empty for the whole bucket."""

    @property
    def url(self) -> str:
        """The address as people write it."""
        return f"{self.scheme}://{self.bucket}/{self.key}"


def is_remote(path: str) -> bool:
    """Whether a path is an address of an object store."""
    match = _URL.fullmatch(path)
    return match is not None and match[1].lower() in SCHEMES


def parse_address(url: str) -> Address:
    """The parts of an address.

    Raises: ConfigError where it has no bucket, or holds credentials.
    """
    match = _URL.fullmatch(url)
    assert match is not None, "only what is remote has an address"
    scheme, rest = match[1].lower(), match[2]
    bucket, _, key = rest.partition("/")
    if "@" in bucket or ":" in bucket:
        reason = (
            f"`{scheme}://...` holds credentials or a port; give them by the environment,"
            f" and write `{scheme}://BUCKET/NAME`"
        )
        raise ConfigError(reason=reason)
    trimmed = key.removesuffix("/")
    parts = trimmed.split("/") if trimmed else []
    if not bucket or any(part in ("", ".", "..") for part in parts) or "\0" in key:
        reason = (
            f"`{_shown(url)}` is no address of an object store; write `{scheme}://BUCKET/NAME`"
        )
        raise ConfigError(reason=reason)
    return Address(scheme, bucket, "/".join(parts))


def _shown(url: str) -> str:
    return url.partition("?")[0].encode("unicode_escape").decode()[:200]


@functools.lru_cache(maxsize=64)
def open_store(
    scheme: str, bucket: str, prefix: str = "", *, is_bulk: bool = False
) -> ObjectStore:
    """The store of a bucket, below a prefix. Touches nothing.

    Args:
        is_bulk: with the patience that large files need.

    Raises: ConfigError where the environment holds settings that make no store.
    """
    from obstore.exceptions import BaseError
    from obstore.store import AzureStore, GCSStore, S3Store

    _check_environment(_VARIABLES.get(scheme, "AWS_"))
    request_s = BULK_S if is_bulk else REQUEST_S
    options: dict[str, Any] = {
        "prefix": prefix or None,
        "client_options": {
            "timeout": timedelta(seconds=request_s),
            "connect_timeout": timedelta(seconds=CONNECT_S),
        },
        # Ours alone (see attempts.py): the library's own would multiply with it. But a large file that goes up in
        # many parts is not to begin anew for one of them.
        "retry_config": {
            "max_retries": BULK_RETRIES if is_bulk else 0,
            "retry_timeout": timedelta(seconds=request_s),
        },
    }
    try:
        if scheme == "gs":
            return GCSStore(bucket, **options)
        if scheme == "az":
            endpoints = [os.environ.get(name, "") for name in _AZURE_ENDPOINTS]
            if any(endpoint.startswith("http://") for endpoint in endpoints):
                options["client_options"]["allow_http"] = True
            return AzureStore(bucket, **options)
        return S3Store(bucket, **options, **_s3_settings(options["client_options"]))
    except (BaseError, ValueError) as error:
        # The text of the library may hold what the environment says.
        reason = (
            f"`{scheme}://{bucket}` cannot be opened ({type(error).__name__}); see that the"
            " variables of the environment for it are set as they should be"
        )
        raise ConfigError(reason=reason) from error


def _check_environment(beginning: str) -> None:
    """A line end that came along with a secret would end the process inside the library.

    Raises: ConfigError, naming the variable and never what is in it.
    """
    for name, value in os.environ.items():
        if name.startswith(beginning) and (not value.isprintable() or value != value.strip()):
            reason = (
                f"`{name}` in the environment has a line end, a blank at its end or another"
                " character in it that no such value has; set it anew without"
            )
            raise ConfigError(reason=reason)


@functools.lru_cache(maxsize=64)
def attempts_of(scheme: str, bucket: str) -> Attempts:
    """The budget for calls to a bucket."""
    return Attempts()


def _s3_settings(client_options: dict[str, Any]) -> dict[str, Any]:
    """What the library does not take from the environment as other tools do."""
    # One at a time is removed anyway, and not every store answers the other request as it should.
    settings: dict[str, Any] = {"disable_bulk_delete": True}
    name = next((name for name in _ENDPOINTS if os.environ.get(name)), "")
    endpoint = os.environ.get(name, "")
    if endpoint:
        if not endpoint.startswith(("http://", "https://")) or "@" in endpoint:
            reason = f"`{name}` in the environment is no `http://HOST:PORT` or `https://HOST`; set it so"
            raise ConfigError(reason=reason)
        settings["endpoint"] = endpoint
        # Who names an endpoint without TLS means it.
        client_options["allow_http"] = endpoint.startswith("http://")
    if not (os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")):
        settings["region"] = "us-east-1"
    return settings
