"""Address of a vector store -> its parts: `pgvector://user:env:PW@host/db?table=docs`.

Promises: a password stands in an address as `env:NAME` only, so an address may be written down and shown;
no message repeats what may be one.
Knows nothing of: stores, settings beside the address.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import msgspec

from rowmill.errors import BadSink

REFERENCE = "env:"
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)
_HIDDEN = "(hidden)"


class SinkAddress(msgspec.Struct, frozen=True):
    """Where a store is, and what is written to there."""

    text: str
    """As it was given."""
    store: str
    """`pgvector`, `qdrant`, `milvus`, `lancedb`, or a plugin's name."""
    transport: str
    """What stands behind the `+` of the scheme; empty for none."""
    user: str
    password: str
    """Name of the environment variable that holds it; empty for none."""
    host: str
    port: int | None
    path: str
    parameters: dict[str, str]

    def secret(self, environment: Mapping[str, str] | None = None) -> str:
        """The password itself; empty where the address names none.

        Raises: BadSink where the variable is not set.
        """
        if not self.password:
            return ""
        found = (os.environ if environment is None else environment).get(self.password)
        if not found:
            reason = f"`{self.text}`: the environment variable `{self.password}` is not set; export it first"
            raise BadSink(reason=reason)
        return found

    def hidden(self, words: object) -> str:
        """What a library said, on one line, without the password it may repeat."""
        text = " ".join(str(words).split())
        secret = os.environ.get(self.password, "") if self.password else ""
        return text.replace(secret, _HIDDEN) if secret else text


def parse_sink(text: str) -> SinkAddress:
    """Take an address apart.

    Raises: BadSink for one that is none, or that holds a password.
    """
    url = _split(text)
    store, _, transport = url.scheme.partition("+")
    user, _, password = url.netloc.rpartition("@")[0].partition(":")
    if password and not password.startswith(REFERENCE):
        reason = (
            f"the address of the `{store}` sink holds a password; put it into an environment variable"
            f" and name that: `{url.scheme}://USER:env:NAME@HOST`"
        )
        raise BadSink(reason=reason)
    parameters = dict(parse_qsl(url.query, keep_blank_values=True))
    for name, value in parameters.items():
        if _SECRET.search(name) and not value.startswith(REFERENCE):
            reason = f"the address of the `{store}` sink holds a secret as `{name}`; write `USER:env:NAME@HOST`"
            raise BadSink(reason=reason)
    return SinkAddress(
        text=text,
        store=store,
        transport=transport,
        user=unquote(user),
        password=password.removeprefix(REFERENCE),
        host=url.hostname or "",
        port=_port(url),
        path=unquote(url.path),
        parameters=parameters,
    )


def _split(text: str) -> SplitResult:
    try:
        url = urlsplit(text)
    except ValueError:
        url = urlsplit("")
    if not url.scheme or "://" not in text:
        reason = (
            "the sink is no address; write one as `pgvector://USER:env:NAME@HOST/DATABASE?table=NAME`,"
            " `qdrant+http://HOST:6333?collection=NAME`, `milvus+http://HOST:19530?collection=NAME`"
            " or `lancedb:///FOLDER?table=NAME`"
        )
        raise BadSink(reason=reason)
    return url


def _port(url: SplitResult) -> int | None:
    try:
        return url.port
    except ValueError:
        reason = f"the port in the address of the `{url.scheme}` sink is no number up to 65535"
        raise BadSink(reason=reason) from None
