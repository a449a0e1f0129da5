"""An in-memory bucket for trying many orders of steps quickly."""

import errno
import itertools
from collections.abc import Iterator
from typing import BinaryIO

from beam_dp.storage.bucket import FoundObject


class MemoryBucket:
    """Implements ``Bucket`` with a dict of contents and versions."""

    def __init__(self, name: str) -> None:
        self.objects: dict[str, tuple[bytes, str]] = {}
        self._versions = map(str, itertools.count(1))

    def check(self) -> None:
        """Does nothing: a bucket in memory is always usable."""

    def create(self, name: str) -> str | None:
        return None if name in self.objects else self._put(name, b"")

    def write(self, name: str, data: bytes) -> None:
        self._put(name, data)

    def replace(self, name: str, version: str, data: bytes) -> str | None:
        if self.objects.get(name, (b"", ""))[1] != version:
            return None
        return self._put(name, data)

    def copy(self, source: str, target: str) -> None:
        self._put(target, self._get(source)[0])

    def copy_exclusively(self, source: str, version: str, target: str) -> bool:
        data, held = self._get(source)
        if held != version or target in self.objects:
            return False
        self._put(target, data)
        return True

    def size(self, name: str) -> int:
        return len(self._get(name)[0])

    def read(self, name: str, file: BinaryIO) -> None:
        file.write(self._get(name)[0])

    def listed(self, prefix: str) -> Iterator[FoundObject]:
        held = sorted(each for each in self.objects.items() if each[0].startswith(prefix))
        return (FoundObject(name, len(data), 0.0) for name, (data, _) in held)

    def delete(self, name: str) -> None:
        self.objects.pop(name, None)

    def _put(self, name: str, data: bytes) -> str:
        self.objects[name] = data, next(self._versions)
        return self.objects[name][1]

    def _get(self, name: str) -> tuple[bytes, str]:
        if name not in self.objects:
            raise FileNotFoundError(errno.ENOENT, "no such object or bucket")
        return self.objects[name]
