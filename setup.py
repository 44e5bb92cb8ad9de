# SPDX-License-Identifier: Apache-2.0
"""Builds `ooospec._C` from csrc/ with ninja; everything else about the package is in pyproject.toml."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import ninja
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent.resolve()

if sys.platform == "win32":
    raise SystemExit("ooospec does not support Windows; use Linux, or WSL.")


class NinjaBuild(build_ext):
    """Writes a build.ninja of all sources and runs it, so that a rebuild compiles only what changed."""

    def build_extension(self, extension: Extension) -> None:
        import pybind11

        target = Path(self.get_ext_fullpath(extension.name)).resolve()
        target.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(self.build_temp).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        includes = [ROOT / "csrc", pybind11.get_include(), *self.include_dirs]
        flags = [
            "-std=c++20",
            "-O3",
            "-fPIC",
            "-fvisibility=hidden",
            "-Wall",
            "-Wextra",
            *(["-Werror"] if os.environ.get("OOOSPEC_WERROR") == "1" else []),
            *(f"-isystem{path}" if "pybind11" in str(path) else f"-I{path}" for path in includes),
        ]
        link = ["-shared", "-s"]
        if sys.platform == "darwin":
            link = ["-bundle", "-undefined", "dynamic_lookup"]
        rules = [
            f"cxx = {os.environ.get('CXX', 'c++')}",
            f"flags = {' '.join(map(str, flags))}",
            "rule compile",
            "  command = $cxx $flags -MMD -MF $out.d -c $in -o $out",
            "  depfile = $out.d",
            "  deps = gcc",
            "rule link",
            f"  command = $cxx {' '.join(link)} $in -o $out",
        ]
        objects = []
        for source in map(Path, extension.sources):
            object_file = folder / source.with_suffix(".o")
            rules.append(f"build {object_file}: compile {ROOT / source}")
            objects.append(str(object_file))
        rules.append(f"build {target}: link {' '.join(objects)}")
        (folder / "build.ninja").write_text("\n".join(rules) + "\n")
        subprocess.run([str(Path(ninja.BIN_DIR) / "ninja"), "-C", str(folder)], check=True)


sources = sorted(
    str(path.relative_to(ROOT))
    for folder in ("ring", "tree", "call", "index", "draft", "bindings")
    for path in (ROOT / "csrc" / folder).glob("*.cc")
)

setup(
    packages=[
        "ooospec",
        "ooospec.backends",
        "ooospec.sidecar",
        "ooospec.triton_kernels",
    ],
    package_dir={
        "": "python",
        "ooospec.triton_kernels": "triton_kernels",
    },
    package_data={"ooospec": ["py.typed", "*.pyi"]},
    ext_modules=[Extension("ooospec._C", sources)],
    cmdclass={"build_ext": NinjaBuild},
)
