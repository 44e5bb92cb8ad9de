# SPDX-License-Identifier: Apache-2.0
"""What others published: a folder or a wheel, and the SHA-256 of the files that are read."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path

from ooospec.errors import InvalidRequest


class Upstream:
    """Files of a clone, an unpacked package or a wheel.

    known: SHA-256 of the files as they were when the rows were made; a file of another hash is
    read all the same, and named in `changed`.
    """

    def __init__(self, path: Path, known: Mapping[str, str]) -> None:
        """Raises InvalidRequest where `path` is neither a folder nor a wheel."""
        self.path = path
        self.known = known
        self.changed: list[str] = []
        if not path.is_dir() and not zipfile.is_zipfile(path):
            raise InvalidRequest(f"{path}: expected a folder or a wheel, got neither")

    def text(self, name: str) -> str:
        """Returns a file's text. Raises InvalidRequest if it is not there."""
        try:
            if self.path.is_dir():
                data = (self.path / name).read_bytes()
            else:
                with zipfile.ZipFile(self.path) as wheel:
                    data = wheel.read(name)
        except (OSError, KeyError) as error:
            raise InvalidRequest(f"{self.path}: expected a file {name}, got none") from error
        if hashlib.sha256(data).hexdigest() != self.known[name]:
            self.changed.append(name)
        return data.decode()
