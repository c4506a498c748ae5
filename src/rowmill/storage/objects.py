"""Names and bytes -> objects of any obstore store, under one prefix.

Promises: create-only and compare-and-swap are the store's own conditional puts; a call that a store heard and
did not answer is found out about, not repeated blindly; obstore's errors end here.
Knows nothing of: which store it is (see addresses.py), what names mean.
Memory: one object at a time; of an upload, pages of its file.
"""

from __future__ import annotations

import builtins
import contextlib
import datetime
import mmap
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING, TypeVar, cast

import msgspec

from rowmill.errors import StorageError
from rowmill.storage.attempts import Attempts, GaveUpOnStore, NotYet, answer_of
from rowmill.storage.contract import Appender, NotThere, check_name, is_hidden

if TYPE_CHECKING:
    from obstore import UpdateVersion
    from obstore.store import ObjectStore

T = TypeVar("T")

PROBE_PREFIX = ".probe-"
STALE_S = 3600.0
"""No probe takes so long; by the store's own clock."""
SINGLE_PUT_BYTES = 512 * 2**20
"""Larger files go up in parts. In one request nothing is ever left behind, so most go so."""
CHUNK_BYTES = 16 * 2**20
MOST_CHUNKS = 9000
"""Stores take 10,000."""
CHUNKS_AT_ONCE = 4


class ObjectStorage:
    """Objects of `store`. Version of an object: its ETag, and the store's own version where it has one."""

    can_append = False

    def __init__(
        self,
        url: str,
        store: ObjectStore,
        *,
        bulk: ObjectStore | None = None,
        attempts: Attempts | None = None,
    ) -> None:
        """Objects of a store.

        Args:
            bulk: the same store, with the patience that large files need.
            attempts: the budget for calls that fail in passing.
        """
        self.url = url
        self.store = store
        self._bulk = bulk or store
        self._attempts = attempts or Attempts()

    def traceless(self) -> contextlib.AbstractContextManager[None]:
        """A store needs nothing beside its objects."""
        return contextlib.nullcontext()

    def path(self, name: str) -> None:
        """Objects lie on no path."""
        check_name(name)

    def appender(self, name: str) -> Appender:
        """Refused: an object is written whole."""
        raise StorageError(path=self.where(name), reason="objects cannot be appended to")

    def read(self, name: str) -> bytes:
        """The whole object."""
        import obstore

        check_name(name)
        return self._call(name, lambda _: bytes(obstore.get(self.store, name).bytes()))

    def read_range(self, name: str, start: int, stop: int) -> bytes:
        """Bytes `start` to `stop`, fewer where the object ends before."""
        import obstore

        size = self.size(name)
        if size is None:
            raise NotThere(path=self.where(name))
        # Stores refuse a range that is empty or begins behind the end.
        stop = min(stop, size)
        if start >= stop:
            return b""
        return self._call(
            name, lambda _: bytes(obstore.get_range(self.store, name, start=start, end=stop))
        )

    def read_versioned(self, name: str) -> tuple[bytes, str] | None:
        """Content and version out of one answer."""
        import obstore

        def get(_: int) -> tuple[bytes, str]:
            found = obstore.get(self.store, check_name(name))
            version = _version_text(found.meta.get("e_tag"), found.meta.get("version"))
            return bytes(found.bytes()), version

        with contextlib.suppress(NotThere):
            return self._call(name, get)
        return None

    def size(self, name: str) -> int | None:
        """Length in bytes; None where it is absent."""
        import obstore

        check_name(name)
        with contextlib.suppress(NotThere):
            return self._call(name, lambda _: obstore.head(self.store, name)["size"])
        return None

    def create(self, name: str, content: bytes, *, durable: bool = True) -> bool:
        """Put where nothing is."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        def put(unknown_before: int) -> bool:
            try:
                # In one request: a multipart upload cannot carry the condition.
                obstore.put(
                    self.store, check_name(name), content, mode="create", use_multipart=False
                )
            except (AlreadyExistsError, PreconditionError) as error:
                found = self.read_versioned(name) if unknown_before else self.size(name)
                if found is None:
                    # Another request for this name was under way, and left nothing.
                    raise NotYet(answer_of(error)) from error
                # What nobody answered for may have been heard. What two would create alike says who they are.
                return isinstance(found, tuple) and found[0] == content
            return True

        return self._call(name, put, is_write=True)

    def replace(self, name: str, content: bytes) -> None:
        """Put over whatever was there."""
        import obstore

        check_name(name)
        self._call(
            name,
            lambda _: obstore.put(
                self.store, name, content, mode="overwrite", use_multipart=False
            ),
            is_write=True,
        )

    def upload(self, name: str, file: IO[bytes], num_bytes: int) -> None:
        """Put a whole local file over whatever was there; until this returns, nothing of it is seen."""
        import obstore

        check_name(name)
        if num_bytes > SINGLE_PUT_BYTES:
            chunk_bytes = max(CHUNK_BYTES, -(-num_bytes // MOST_CHUNKS))

            def put_chunks(_: int) -> None:
                file.seek(0)
                obstore.put(
                    self._bulk,
                    name,
                    file,
                    use_multipart=True,
                    chunk_size=chunk_bytes,
                    max_concurrency=CHUNKS_AT_ONCE,
                )

            self._call(name, put_chunks, is_write=True)
            return
        if not num_bytes:
            self.replace(name, b"")
            return
        # Not closed here: a store in memory goes on holding it.
        content = mmap.mmap(file.fileno(), num_bytes, access=mmap.ACCESS_READ)
        self._call(
            name,
            lambda _: obstore.put(self._bulk, name, content, use_multipart=False),
            is_write=True,
        )

    def swap(
        self, name: str, content: bytes, version: str, *, durable: bool = True
    ) -> str | None:
        """Put where the object still has `version`."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        condition = cast("UpdateVersion", msgspec.json.decode(version))

        def put(unknown_before: int) -> str | None:
            try:
                done = obstore.put(
                    self.store, check_name(name), content, mode=condition, use_multipart=False
                )
            except AlreadyExistsError as error:
                # A conflict with another request under way: nobody has won yet.
                raise NotYet(answer_of(error)) from error
            except (PreconditionError, FileNotFoundError):
                found = self.read_versioned(name) if unknown_before else None
                return found[1] if found and found[0] == content else None
            return _version_text(done.get("e_tag"), done.get("version"))

        return self._call(name, put, is_write=True)

    def list(self, prefix: str) -> builtins.list[str]:
        """Names that begin with `prefix`, in order."""
        # A store's own prefix ends at a `/`; the rest is compared here.
        folder, _, _ = prefix.rpartition("/")
        names = [name for name, _ in self._listed(folder)]
        return sorted(name for name in names if name.startswith(prefix) and not is_hidden(name))

    def top_names(self) -> builtins.list[str]:
        """Objects at the top, and the folders there, with a `/` at their end; hidden ones left out."""
        import obstore

        found = self._call("", lambda _: obstore.list_with_delimiter(self.store))
        names = [one["path"] for one in found["objects"]]
        names += [f"{folder}/" for folder in found["common_prefixes"]]
        # An object of the prefix's own name is what consoles make for an empty folder.
        return sorted(name for name in names if name and not is_hidden(name))

    def remove(self, name: str) -> None:
        """Delete the object; absent is fine."""
        import obstore

        check_name(name)
        with contextlib.suppress(NotThere):
            self._call(name, lambda _: obstore.delete(self.store, name))

    def sweep(self) -> int:
        """Remove what a killed start left of its probe; how many there were."""
        import obstore

        found = self._call("", lambda _: obstore.list_with_delimiter(self.store))["objects"]
        newest = max((one["last_modified"] for one in found), default=None)
        stale = datetime.timedelta(seconds=STALE_S)
        left = [
            one["path"]
            for one in found
            if one["path"].startswith(PROBE_PREFIX)
            and newest is not None
            and newest - one["last_modified"] > stale
        ]
        for name in left:
            self.remove(name)
        return len(left)

    def where(self, name: str) -> str:
        """Address of an object, for people."""
        return f"{self.url.rstrip('/')}/{name}"

    def _listed(self, folder: str) -> builtins.list[tuple[str, int]]:
        import obstore

        def ask(_: int) -> builtins.list[tuple[str, int]]:
            chunks = obstore.list(self.store, prefix=folder or None)
            return [(found["path"], found["size"]) for chunk in chunks for found in chunk]

        return self._call(folder, ask)

    def _call(self, name: str, act: Callable[[int], T], *, is_write: bool = False) -> T:
        with self._told(name, is_write=is_write):
            return self._attempts.call(act)

    @contextlib.contextmanager
    def _told(self, name: str, *, is_write: bool = False) -> Iterator[None]:
        """Every error of obstore inside leaves as a StorageError that names the object and the reason."""
        from obstore.exceptions import BaseError

        try:
            yield
        except FileNotFoundError as error:
            if is_write:
                answer = answer_of(error)
                reason = f"cannot be written ({answer.words}); see that the bucket exists"
                raise StorageError(path=self.where(name), reason=reason) from error
            raise NotThere(path=self.where(name)) from error
        except GaveUpOnStore as error:
            raise StorageError(path=self.where(name), reason=str(error)) from error
        # NotImplementedError: a store without conditions. OSError: the network, or no permission.
        except (BaseError, OSError, NotImplementedError) as error:
            raise StorageError(path=self.where(name), reason=answer_of(error).words) from error


def _version_text(e_tag: str | None, version: str | None) -> str:
    """As JSON of what is there: obstore refuses a `version` of None."""
    both = {"e_tag": e_tag, "version": version}
    return msgspec.json.encode({k: v for k, v in both.items() if v is not None}).decode()
