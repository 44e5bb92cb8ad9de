# SPDX-License-Identifier: Apache-2.0
"""Builds `ooospec._C` from csrc/ with ninja, and `ooospec._C_cuda` where there is an nvcc;
pyproject.toml says the rest about the package.

OOOSPEC_CUDA_ARCHS: compute capabilities to build for, such as "80;90" (the last one as PTX too);
"none": leave `_C_cuda` out.
"""

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
CORE_FOLDERS = ("common", "ring", "tree", "call", "index", "draft", "wave")
CUDA_SOURCES = [
    str(path.relative_to(ROOT))
    for folder in ("cuda", "bindings/cuda")
    for path in sorted((ROOT / "csrc" / folder).glob("*.c[cu]"))
]
HOPPER_SOURCES = {"linear.cu"}  # whose instructions no other GPU has
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


def cuda_archs() -> list[str]:
    """Returns the compute capabilities to build for; none without an nvcc."""
    archs = os.environ.get("OOOSPEC_CUDA_ARCHS", "80;90")
    if archs == "none" or nvcc() is None:
        return []
    if not re.fullmatch(r"\d+[af]?(;\d+[af]?)*", archs):
        raise SystemExit(
            f"ooospec: OOOSPEC_CUDA_ARCHS: expected capabilities such as '80;90', or 'none', got"
            f" {archs!r}"
        )
    return archs.split(";")


def nvcc() -> Path | None:
    """Returns the CUDA compiler: of $CUDA_HOME, or the one on the PATH; None if there is none."""
    home = os.environ.get("CUDA_HOME")
    found = shutil.which("nvcc", path=f"{home}/bin" if home else None)
    return Path(found).resolve() if found else None


def cuda_folder(compiler: Path) -> Path:
    """Returns the toolkit of an nvcc, which says itself where it lies."""
    done = subprocess.run([compiler, "--dryrun", "-x", "cu", "/dev/null"], capture_output=True)
    top = re.search(rb"^#\$ TOP=(.*)$", done.stderr, re.MULTILINE)
    return Path(top[1].decode()).resolve() if top else compiler.parents[1]


def cuda_rules(archs: list[str]) -> tuple[list[str], list[str], list[str]]:
    """Returns the rules of ninja to compile with nvcc, and more flags to compile and link with."""
    compiler = nvcc()
    assert compiler is not None
    folder = cuda_folder(compiler)
    codes = [f"-gencode=arch=compute_{arch},code=sm_{arch}" for arch in archs]
    codes.append(f"-gencode=arch=compute_{archs[-1]},code=compute_{archs[-1]}")
    werror = ["-Werror=all-warnings"] if os.environ.get("OOOSPEC_WERROR") == "1" else []
    nvcc_flags = [
        *("-std=c++20", "-O3", "-Xcompiler=-fPIC,-fvisibility=hidden", f"-I{ROOT / 'csrc'}"),
        *werror,
    ]
    rules = [
        f"nvcc = {escape(str(compiler))}",
        f"codes = {' '.join(codes)}",
        f"nvcc_flags = {' '.join(map(escape, nvcc_flags))}",
        "rule compile_cuda",
        "  command = $nvcc $nvcc_flags $codes -MMD -MF $out.d -c $in -o $out",
        "  description = compile $in",
        "  depfile = $out.d",
        "  deps = gcc",
    ]
    library = next(folder.glob("**/libcudart_static.a"), None)
    if library is None:
        raise SystemExit(
            f"ooospec: expected libcudart_static.a in {folder}, got none; install it, or set"
            " OOOSPEC_CUDA_ARCHS=none to do without CUDA."
        )
    compile_flags = [
        f"-isystem{folder / 'include'}",
        f"-DOOOSPEC_CUDA_ARCHS='\"{';'.join(archs)}\"'",
    ]
    return rules, compile_flags, [str(library), "-ldl", "-lrt", "-lpthread"]


class NinjaBuild(build_ext):
    """Writes a build.ninja and runs it, so that a rebuild compiles only what changed."""

    def build_extension(self, extension: Extension) -> None:
        import ninja

        target = Path(self.get_ext_fullpath(extension.name)).resolve()
        target.parent.mkdir(parents=True, exist_ok=True)
        on_cuda = extension.name == "ooospec._C_cuda"
        folder = self.kept_folder() / ("cuda" if on_cuda else "")
        folder.mkdir(parents=True, exist_ok=True)
        compile_flags, link_flags = flags()
        compile_flags += [f"-I{path}" for path in self.include_dirs]
        rules, libraries = [], []
        if on_cuda:
            rules, more_flags, libraries = cuda_rules(cuda_archs())
            compile_flags += more_flags
        rules += [
            f"cxx = {compiler()}",
            f"flags = {' '.join(map(escape, compile_flags))}",
            f"libraries = {' '.join(map(escape, libraries))}",
            "rule compile",
            "  command = $cxx $flags -MMD -MF $out.d -c $in -o $out",
            "  description = compile $in",
            "  depfile = $out.d",
            "  deps = gcc",
            "rule link",
            f"  command = $cxx {' '.join(link_flags)} $in $libraries -o $out",
            "  description = link $out",
        ]
        objects = []
        sources = extension.sources if on_cuda else [*extension.sources, str(together(folder))]
        for source in sources:
            rule = "compile_cuda" if source.endswith(".cu") else "compile"
            objects.append(
                escape(f"{source}.o" if on_cuda else str(Path(source).with_suffix(".o")))
            )
            rules.append(f"build {objects[-1]}: {rule} {escape(str(ROOT / source))}")
            if Path(source).name in HOPPER_SOURCES:
                rules.append("  codes = -gencode=arch=compute_90a,code=sm_90a")
        rules.append(f"build {escape(str(target))}: link {' '.join(objects)}")
        (folder / "build.ninja").write_text("\n".join(rules) + "\n")
        quiet = [] if self.verbose else ["--quiet"]
        command = [str(Path(ninja.BIN_DIR) / "ninja"), *quiet, "-C", str(folder)]
        if subprocess.run(command).returncode != 0:
            raise SystemExit("ooospec: the C++ core did not compile; see the compiler's message.")

    def kept_folder(self) -> Path:
        """Returns the folder of the objects. An editable installation would drop its own, and the
        first `build_ext --inplace` compile all again.
        """
        if not self.editable_mode:
            return Path(self.build_temp).resolve()
        return ROOT / "build" / f"temp.{self.plat_name}-{sys.implementation.cache_tag}"


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
    package_data={"ooospec": ["py.typed", "*.pyi"], "ooospec.shipped": ["*/*"]},
    ext_modules=[
        Extension("ooospec._C", SOURCES),
        *([Extension("ooospec._C_cuda", CUDA_SOURCES)] if cuda_archs() else []),
    ],
    cmdclass={"build_ext": NinjaBuild, "bdist_wheel": ManylinuxWheel},
)
