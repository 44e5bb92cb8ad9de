# SPDX-License-Identifier: Apache-2.0
"""The folder in which Triton keeps what it compiled: one that can be written."""

import atexit
import logging
import os
import shutil
import tempfile
from pathlib import Path

from triton import knobs

logger = logging.getLogger("ooospec")


def ensure_writable():
    """Gives this process a folder of its own where Triton's cannot be written; the log says so.

    What the other one holds is found there too. Mutates: triton.knobs.cache.dir, and with it
    TRITON_CACHE_DIR. Raises OSError where no temporary folder can be made either.
    """
    folder = Path(knobs.cache.dir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return
    except OSError as error:
        reason = error.strerror or str(error)
    own = Path(tempfile.mkdtemp(prefix="ooospec-triton-"))
    atexit.register(_remove, own, os.getpid())
    if folder.is_dir() and os.access(folder, os.R_OK):
        for entry in folder.iterdir():
            if not entry.is_dir():
                (own / entry.name).symlink_to(entry)
                continue
            (own / entry.name).mkdir()  # ours: a kernel that is only half there is compiled again
            for file in entry.iterdir():
                (own / entry.name / file.name).symlink_to(file)
    knobs.cache.dir = str(own)
    logger.warning(
        "Triton's cache %s cannot be written (%s): kernels are compiled into %s, anew in each "
        "process; set TRITON_CACHE_DIR to a folder that can be written",
        folder,
        reason,
        own,
    )


def _remove(folder, process):
    if os.getpid() == process:  # not in a fork of it
        shutil.rmtree(folder, ignore_errors=True)
