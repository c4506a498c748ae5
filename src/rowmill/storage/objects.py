"""Names and bytes -> objects of any obstore store, under one prefix.

Promises: create-only and compare-and-swap are the store's own conditional puts; obstore's errors end here.
Knows nothing of: which store it is (memory today; S3, GCS and Azure by construction), what names mean.
Memory: one object at a time.
"""

from __future__ import annotations

import builtins
import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

import msgspec

from rowmill.errors import StorageError
from rowmill.storage.contract import Appender, NotThere, check_name, is_hidden

if TYPE_CHECKING:
    from obstore import UpdateVersion
    from obstore.store import ObjectStore


class ObjectStorage:
    """Objects of `store`. Version of an object: its ETag, and the store's own version where it has one."""

    can_append = False

    def __init__(self, url: str, store: ObjectStore) -> None:
        self.url = url
        self.store = store

    def path(self, name: str) -> None:
        """Objects lie on no path."""
        check_name(name)

    def appender(self, name: str) -> Appender:
        """Refused: an object is written whole."""
        raise StorageError(path=self._where(name), reason="objects cannot be appended to")

    def read(self, name: str) -> bytes:
        """The whole object."""
        import obstore

        with self._told(name):
            return bytes(obstore.get(self.store, check_name(name)).bytes())

    def read_range(self, name: str, start: int, stop: int) -> bytes:
        """Bytes `start` to `stop`, fewer where the object ends before."""
        import obstore

        size = self.size(name)
        if size is None:
            raise NotThere(path=self._where(name))
        # Stores refuse a range that is empty or begins behind the end.
        stop = min(stop, size)
        if start >= stop:
            return b""
        with self._told(name):
            return bytes(obstore.get_range(self.store, check_name(name), start=start, end=stop))

    def read_versioned(self, name: str) -> tuple[bytes, str] | None:
        """Content and version out of one answer."""
        import obstore

        try:
            with self._told(name):
                found = obstore.get(self.store, check_name(name))
                version = _version_text(found.meta.get("e_tag"), found.meta.get("version"))
                return bytes(found.bytes()), version
        except NotThere:
            return None

    def size(self, name: str) -> int | None:
        """Length in bytes; None where it is absent."""
        import obstore

        try:
            with self._told(name):
                return obstore.head(self.store, check_name(name))["size"]
        except NotThere:
            return None

    def create(self, name: str, content: bytes, *, durable: bool = True) -> bool:
        """Put where nothing is."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        with self._told(name):
            try:
                # In one request: a multipart upload cannot carry the condition.
                obstore.put(
                    self.store, check_name(name), content, mode="create", use_multipart=False
                )
            except (AlreadyExistsError, PreconditionError):
                return False
        return True

    def replace(self, name: str, content: bytes) -> None:
        """Put over whatever was there."""
        import obstore

        with self._told(name):
            obstore.put(self.store, check_name(name), content, mode="overwrite")

    def swap(
        self, name: str, content: bytes, version: str, *, durable: bool = True
    ) -> str | None:
        """Put where the object still has `version`."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        condition = cast("UpdateVersion", msgspec.json.decode(version))
        with self._told(name):
            try:
                # Stores answer a lost race as a failed condition, a conflict, or as not found.
                put = obstore.put(
                    self.store, check_name(name), content, mode=condition, use_multipart=False
                )
            except (PreconditionError, AlreadyExistsError, FileNotFoundError):
                return None
        return _version_text(put.get("e_tag"), put.get("version"))

    def list(self, prefix: str) -> builtins.list[str]:
        """Names that begin with `prefix`, in order."""
        import obstore

        # A store's own prefix ends at a `/`; the rest is compared here.
        folder, _, _ = prefix.rpartition("/")
        with self._told(prefix):
            chunks = obstore.list(self.store, prefix=folder or None)
            names = [found["path"] for chunk in chunks for found in chunk]
        return sorted(name for name in names if name.startswith(prefix) and not is_hidden(name))

    def remove(self, name: str) -> None:
        """Delete the object; absent is fine."""
        import obstore

        with contextlib.suppress(NotThere), self._told(name):
            obstore.delete(self.store, check_name(name))

    def _where(self, name: str) -> str:
        return f"{self.url.rstrip('/')}/{name}"

    @contextlib.contextmanager
    def _told(self, name: str) -> Iterator[None]:
        """Every error of obstore inside leaves as a StorageError that names the object and the reason."""
        from obstore.exceptions import BaseError

        try:
            yield
        except FileNotFoundError as error:
            raise NotThere(path=self._where(name)) from error
        # NotImplementedError: a store without conditions. OSError: the network, or no permission.
        except (BaseError, OSError, NotImplementedError) as error:
            reason = str(error).partition("\n")[0] or type(error).__name__
            raise StorageError(path=self._where(name), reason=reason) from error


def _version_text(e_tag: str | None, version: str | None) -> str:
    """As JSON of what is there: obstore refuses a `version` of None."""
    both = {"e_tag": e_tag, "version": version}
    return msgspec.json.encode({k: v for k, v in both.items() if v is not None}).decode()
