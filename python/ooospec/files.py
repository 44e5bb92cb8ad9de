# SPDX-License-Identifier: Apache-2.0
"""Files that commands write: whole or not at all. A disk that is full, a folder that is not there:
one error that names the file.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ooospec.errors import InvalidRequest


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """What the system refuses inside is about writing to `path`. Raises InvalidRequest."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise InvalidRequest(
            f"{os.fspath(path)}: expected a place to write to, got {error.strerror or error}"
        ) from error


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Gives a file that takes the place of `path` once all of it is written; where that fails,
    `path` stays as it was. Folders that are not there are made. Devices and pipes are written to
    as they are.

    Raises InvalidRequest.
    """
    check_place(Path(path))
    with writing(path):
        place = Path(os.path.realpath(path))
        if place.exists() and not place.is_file():
            with place.open("wb") as file:
                yield file
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        new = place.with_name(f"{place.name}.new")
        try:
            with new.open("wb") as file:
                yield file
            os.replace(new, place)
        except BaseException:
            with contextlib.suppress(OSError):  # it may never have come to be
                new.unlink()
            raise


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Writes a text as a whole_file() in UTF-8. Raises InvalidRequest."""
    with whole_file(path) as file:
        file.write(text.encode())


def check_place(path: Path, *, is_folder: bool = False) -> None:
    """Raises InvalidRequest where it is plain that no file, or no folder, can be at `path`."""
    for above in (path, *path.absolute().parents):
        if not above.exists():
            continue
        if (is_folder or above != path) and not above.is_dir():
            raise InvalidRequest(f"{path}: expected a place to write to, got a file at {above}")
        if not os.access(above, os.W_OK):
            raise InvalidRequest(f"{path}: expected a place to write to, got no right to {above}")
        return


def make_folder(path: Path) -> None:
    """Makes a folder and those above it, where they are not there. Raises InvalidRequest."""
    check_place(path, is_folder=True)
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)


def whole_lines(path: Path) -> list[str]:
    """Returns the lines of a file, none where there is no file; what a kill cut off behind the last
    line end is taken off the file. Raises InvalidRequest.
    """
    if not path.is_file():
        return []
    with writing(path):
        data = path.read_bytes()
        end = data.rfind(b"\n") + 1
        if end < len(data):
            os.truncate(path, end)
    try:
        return [line for line in data[:end].decode().split("\n") if line]
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{path}: expected lines of text, got {error}") from error


def append_whole(path: Path, data: bytes) -> None:
    """Adds `data` to the end of a file, all of it or nothing. Raises InvalidRequest."""
    is_new = not path.exists()
    with writing(path), path.open("ab", buffering=0) as file:
        start = file.tell()
        try:
            while data:
                data = data[file.write(data) :]
        except BaseException:
            with contextlib.suppress(OSError):  # a device has no length
                file.truncate(start)
            if is_new:
                path.unlink()
            raise
