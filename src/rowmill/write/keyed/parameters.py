"""The parts of an address -> the name of the table, the folder; nothing else than the store knows.

Knows nothing of: stores.
"""

from __future__ import annotations

from collections.abc import Sequence

from rowmill.errors import BadSink, UnknownName
from rowmill.sink_address import SinkAddress


def check_parameters(
    address: SinkAddress,
    *,
    table: str,
    others: Sequence[str] = (),
    transports: Sequence[str] = ("",),
) -> str:
    """Name of the table.

    Args:
        table: what the store calls a table; the parameter with its name.
        transports: what may stand behind the `+` of the scheme.

    Raises: UnknownName, BadSink.
    """
    if address.transport not in transports:
        known = [f"{address.store}+{one}" if one else address.store for one in transports]
        scheme = f"{address.store}+{address.transport}".rstrip("+")
        raise UnknownName(what="scheme of a sink", name=scheme, known=known)
    for name in address.parameters:
        if name not in (table, *others):
            raise UnknownName(
                what=f"parameter of a `{address.store}` sink", name=name, known=[table, *others]
            )
    found = address.parameters.get(table, "")
    if not found:
        reason = f"`{address.text}`: it names no {table}; add `?{table}=NAME`"
        raise BadSink(reason=reason)
    return found


def folder_of(address: SinkAddress) -> str:
    """The folder of an address of files: `SCHEME:///FOLDER`, or `SCHEME://./FOLDER` from where the command is given.

    Raises: BadSink.
    """
    if address.host not in ("", "."):
        scheme = address.text.partition("://")[0]
        reason = f"`{address.text}`: a folder is written `{scheme}:///FOLDER`, or `{scheme}://./FOLDER` from here"
        raise BadSink(reason=reason)
    return address.path.lstrip("/") if address.host else address.path
