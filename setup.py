# SPDX-License-Identifier: Apache-2.0
"""Builds `ooospec._C` from csrc/ with ninja; pyproject.toml says the rest about the package."""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

if sys.platform == "win32":
    raise SystemExit("ooospec does not support Windows; use Linux, or WSL.")

from setuptools import Extension, find_packages, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent.resolve()
CORE_FOLDERS = ("common", "ring", "tree", "call", "index", "draft")
BINDINGS = sorted((ROOT / "csrc" / "bindings").glob("*.cc"))
SOURCES = sorted(
    str(path.relative_to(ROOT))
    for folder in CORE_FOLDERS
    for path in (ROOT / "csrc" / folder).glob("*.cc")
)


def compiler() -> str:
    """Returns the C++ compiler: $CXX, or c++ as the system names it."""
    command = os.environ.get("CXX", "c++")
    if shutil.which(shlex.split(command)[0]) is None:
        raise SystemExit(
            f"ooospec: expected a C++20 compiler (g++ 11, clang 14 or newer), got no {command!r};"
            " install one or name it with CXX=..., or install a wheel."
        )
    return command


def flags() -> tuple[list[str], list[str]]:
    """Returns the flags to compile and to link with."""
    import pybind11

    compile_flags = [
        "-std=c++20",
        "-O3",
        "-fPIC",
        "-fvisibility=hidden",
        "-fvisibility-inlines-hidden",
        "-Wall",
        "-Wextra",
        f"-I{ROOT / 'csrc'}",
        f"-isystem{pybind11.get_include()}",
    ]
    if os.environ.get("OOOSPEC_WERROR") == "1":
        compile_flags.append("-Werror")
    if sys.platform == "darwin":
        return compile_flags, ["-bundle", "-undefined", "dynamic_lookup"]
    return compile_flags, ["-shared", "-s"]


class NinjaBuild(build_ext):
    """Writes a build.ninja and runs it, so that a rebuild compiles only what changed."""

    def build_extension(self, extension: Extension) -> None:
        import ninja

        target = Path(self.get_ext_fullpath(extension.name)).resolve()
        target.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(self.build_temp).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        compile_flags, link_flags = flags()
        compile_flags += [f"-I{path}" for path in self.include_dirs]
        rules = [
            f"cxx = {compiler()}",
            f"flags = {' '.join(map(escape, compile_flags))}",
            "rule compile",
            "  command = $cxx $flags -MMD -MF $out.d -c $in -o $out",
            "  description = compile $in",
            "  depfile = $out.d",
            "  deps = gcc",
            "rule link",
            f"  command = $cxx {' '.join(link_flags)} $in -o $out",
            "  description = link $out",
        ]
        objects = []
        for source in [*extension.sources, str(together(folder))]:
            objects.append(escape(str(Path(source).with_suffix(".o"))))
            rules.append(f"build {objects[-1]}: compile {escape(str(ROOT / source))}")
        rules.append(f"build {escape(str(target))}: link {' '.join(objects)}")
        (folder / "build.ninja").write_text("\n".join(rules) + "\n")
        quiet = [] if self.verbose else ["--quiet"]
        command = [str(Path(ninja.BIN_DIR) / "ninja"), *quiet, "-C", str(folder)]
        if subprocess.run(command).returncode != 0:
            raise SystemExit("ooospec: the C++ core did not compile; see the compiler's message.")


def together(folder: Path) -> Path:
    """Writes a source that includes all bindings, so that the headers of pybind11 are read once."""
    lines = [f'#include "{path.relative_to(ROOT / "csrc")}"' for path in BINDINGS]
    source = folder / "bindings.cc"
    text = "\n".join(lines) + "\n"
    if not source.exists() or source.read_text() != text:
        source.write_text(text)
    return source


def escape(path: str) -> str:
    """Writes `path` as ninja reads it."""
    return re.sub(r"([$ :])", r"$\1", path)


# (newest GLIBCXX_3.4.x, glibc 2.y that came with it), as auditwheel's policies have them.
GLIBC_OF_GLIBCXX = ((19, 17), (24, 27), (28, 31), (29, 34), (30, 35), (33, 39))


def oldest_glibc(library: bytes) -> int:
    """Returns the y of the oldest glibc 2.y that has every symbol version which `library` needs."""
    needs = [int(y) for y in re.findall(rb"\0GLIBC_2\.(\d+)", library)]
    for x in re.findall(rb"\0GLIBCXX_3\.4\.(\d+)", library):
        needs.append(next((y for newest, y in GLIBC_OF_GLIBCXX if int(x) <= newest), 99))
    return max(17, *needs)


class ManylinuxWheel(bdist_wheel):
    """Names the wheel by the oldest glibc that the compiled core runs with (PEP 600)."""

    def get_tag(self) -> tuple[str, str, str]:
        python, abi, tag = super().get_tag()
        if tag.startswith("linux_") and platform.libc_ver()[0] == "glibc":
            libraries = [path.read_bytes() for path in Path(self.bdist_dir).rglob("*.so")]
            version = max(map(oldest_glibc, libraries), default=17)
            tag = tag.replace("linux", f"manylinux_2_{version}", 1)
        return python, abi, tag


setup(
    packages=[*find_packages("python"), "ooospec.triton_kernels"],
    package_dir={"": "python", "ooospec.triton_kernels": "triton_kernels"},
    package_data={"ooospec": ["py.typed", "*.pyi"]},
    ext_modules=[Extension("ooospec._C", SOURCES)],
    cmdclass={"build_ext": NinjaBuild, "bdist_wheel": ManylinuxWheel},
)
