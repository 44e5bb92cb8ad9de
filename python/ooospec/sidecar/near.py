# SPDX-License-Identifier: Apache-2.0
"""Keeps a sidecar's process on the CPU cores that lie next to its GPU."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import torch

logger = logging.getLogger("ooospec.sidecar")

PCI_DEVICES = Path("/sys/bus/pci/devices")


def stay_near(device: torch.device) -> frozenset[int]:
    """Binds this thread, and those that it will start, to the cores of a GPU's NUMA node; returns
    them, or none where the system names none, or they are all that it may use anyway.
    """
    if device.type != "cuda" or not hasattr(os, "sched_setaffinity"):
        return frozenset()
    card: Any = torch.cuda.get_device_properties(device)
    address = f"{card.pci_domain_id:04x}:{card.pci_bus_id:02x}:{card.pci_device_id:02x}.0"
    try:
        near = read_cpulist((PCI_DEVICES / address / "local_cpulist").read_text())
        allowed = os.sched_getaffinity(0)
        if not near & allowed or allowed <= near:
            return frozenset()
        os.sched_setaffinity(0, near & allowed)
    except (OSError, ValueError) as error:
        logger.info("the cores next to %s are not known: %s", device, error)
        return frozenset()
    return frozenset(near & allowed)


def read_cpulist(text: str) -> set[int]:
    """Returns the cores of a list as Linux writes it, such as 0-3,8. Raises ValueError."""
    cores: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        cores.update(range(int(first), int(last or first) + 1))
    return cores
