# SPDX-License-Identifier: Apache-2.0
"""What is installed, what importing it does, and who may know of whom."""

from __future__ import annotations

import ast
import os
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

import ooospec

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "python" / "ooospec"
KERNELS = ROOT / "triton_kernels"


def run_python(code: str, *options: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs `code` in a new interpreter; env: variables to change, "" removes one."""
    changed = {name: value for name, value in {**os.environ, **env}.items() if value != ""}
    command = [sys.executable, *options, "-c", code]
    return subprocess.run(command, cwd=cwd, env=changed, capture_output=True, text=True)


def check_python(code: str, *options: str, cwd: Path, **env: str) -> str:
    done = run_python(code, *options, cwd=cwd, **env)
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- import -------------------------------------------------------------------------------------

USE_ALL_NAMES = """
import pkgutil, importlib, ooospec
for name in ooospec.__all__:
    getattr(ooospec, name)
for module in pkgutil.walk_packages(ooospec.__path__, "ooospec."):
    if "triton_kernels." not in module.name and not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""


def test_import_needs_neither_torch_nor_triton_nor_a_compiler(tmp_path: Path) -> None:
    code = """
import sys
for name in ("torch", "triton", "transformers", "numpy", "rich", "typer"):
    sys.modules[name] = None
import ooospec
ring = ooospec.HintRing(1024)
assert ring.try_pop() is None
print(ooospec.__version__, len(ooospec.DraftTree(7)))
"""
    out = check_python(code, cwd=tmp_path, PATH="/nonexistent", CUDA_HOME="", CXX="")
    assert out.split() == [ooospec.__version__, "1"]


def test_no_module_needs_triton_or_touches_gpu_or_environment(tmp_path: Path) -> None:
    block = """
import os, sys
sys.modules["triton"] = None
import torch
from transformers import PreTrainedModel
def touched(*_, **__):
    raise AssertionError("an import touched the GPU")
for name in ("is_available", "device_count", "current_device", "init", "_lazy_init"):
    setattr(torch.cuda, name, touched)
before = dict(os.environ)
"""
    check_python(block + USE_ALL_NAMES + "assert dict(os.environ) == before", cwd=tmp_path)


def test_a_forked_child_can_tokenise_as_its_parent_did(tmp_path: Path) -> None:
    code = """
import os, signal
from ooospec.tokens import TokenTable
from tiny_models import TEXT, tiny_tokenizer
tokenizer = tiny_tokenizer()
table = TokenTable(tokenizer)
before = tokenizer(TEXT * 200)["input_ids"], table.encode(TEXT[0])
pid = os.fork()
if pid == 0:
    signal.alarm(120)
    after = tokenizer(TEXT * 200)["input_ids"], table.encode(TEXT[0])
    os._exit(0 if after == before else 1)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
"""
    check_python(code, cwd=tmp_path, PYTHONPATH=str(ROOT / "tests"))


@pytest.mark.gpu
def test_a_forked_child_can_use_cuda_after_the_import(tmp_path: Path) -> None:
    child = """
import os
pid = os.fork()
if pid == 0:
    import torch
    torch.zeros(1, device="cuda")
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
"""
    check_python(USE_ALL_NAMES + child, cwd=tmp_path)


def test_every_public_name_exists_and_a_wrong_one_is_named() -> None:
    for name in ooospec.__all__:
        assert getattr(ooospec, name) is not None
        assert name in dir(ooospec)
    with pytest.raises(AttributeError, match="no attribute 'HintRign'"):
        ooospec.HintRign  # noqa: B018


def test_the_source_folder_is_not_importable_by_accident() -> None:
    done = run_python("import ooospec", "-S", cwd=ROOT, PYTHONPATH="")
    assert "ModuleNotFoundError" in done.stderr


def test_a_missing_core_says_what_to_do(tmp_path: Path) -> None:
    copy = tmp_path / "ooospec"
    copy.mkdir()
    for name in ("__init__.py", "version.py", "_core.py"):
        (copy / name).write_text((PACKAGE / name).read_text())
    done = run_python("import ooospec; ooospec.HintRing", "-S", cwd=ROOT, PYTHONPATH=str(tmp_path))
    assert "the compiled core is missing" in done.stderr
    assert "pip install" in done.stderr


def test_the_top_level_name_triton_kernels_stays_free(tmp_path: Path) -> None:
    (tmp_path / "triton_kernels").mkdir()
    (tmp_path / "triton_kernels" / "__init__.py").write_text("OWNER = 'somebody else'\n")
    code = """
import sys
import ooospec.triton_kernels
assert "triton_kernels" not in sys.modules
import triton_kernels
assert triton_kernels.OWNER == "somebody else"
assert ooospec.triton_kernels is not triton_kernels
"""
    check_python(code, cwd=tmp_path)


# --- the wheel ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source archive and a wheel, made where torch cannot be imported. Objects
    that are compiled already are taken as they are.
    """
    folder = tmp_path_factory.mktemp("dist")
    (folder / "torch.py").write_text("raise ImportError('torch is not for building')\n")
    egg_info = ["egg_info", "-e", str(folder)]
    objects = f"build/temp.{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
    build = ["build", "-b", str(folder / "build"), "-t", objects]
    wheel = ["bdist_wheel", "-b", str(folder / "bdist"), "-d", str(folder)]
    for step in ([*egg_info, "sdist", "-d", str(folder)], [*egg_info, *build, *wheel]):
        done = subprocess.run(
            [sys.executable, "setup.py", "-q", *step],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(folder)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    return folder


def only(folder: Path, pattern: str) -> Path:
    (path,) = folder.glob(pattern)
    return path


def test_the_source_archive_holds_what_a_build_needs(dist: Path) -> None:
    import tarfile

    with tarfile.open(only(dist, "*.tar.gz")) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    sources = [path for path in (ROOT / "csrc").rglob("*") if path.suffix in (".cc", ".cu", ".h")]
    needed = [*sources, *KERNELS.rglob("*.py"), *PACKAGE.rglob("*.py*")]
    wanted = {str(path.relative_to(ROOT)) for path in needed if path.suffix != ".pyc"}
    assert wanted <= names
    assert {"LICENSE", "README.md", "setup.py", "pyproject.toml"} <= names
    assert not [name for name in names if name.endswith((".so", ".o", ".pyc"))]


def test_the_wheel_is_small_and_holds_the_package_only(dist: Path) -> None:
    import zipfile

    wheel = only(dist, "*.whl")
    assert wheel.stat().st_size < 25_000_000
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == {"ooospec"}
    for path in PACKAGE.rglob("*.py"):
        assert f"ooospec/{path.relative_to(PACKAGE)}" in names
    for path in KERNELS.rglob("*.py"):
        assert f"ooospec/triton_kernels/{path.relative_to(KERNELS)}" in names
    shipped = [path for path in (PACKAGE / "shipped").glob("*/*") if path.suffix != ".pyc"]
    assert {f"ooospec/{path.relative_to(PACKAGE)}" for path in shipped} <= set(names)
    assert "ooospec/py.typed" in names
    assert {"ooospec/_C.pyi", "ooospec/_C_cuda.pyi"} <= set(names)
    has_cuda = any(re.fullmatch(r"ooospec/_C_cuda\..*so", name) for name in names)
    assert has_cuda == (shutil.which("nvcc") is not None)


@pytest.mark.skipif(sys.platform != "linux", reason="wheels for Linux only")
def test_the_wheel_runs_where_its_name_says(dist: Path) -> None:
    wheel = only(dist, "*.whl")
    found = re.search(r"-manylinux_2_(\d+)_", wheel.name)
    assert found, wheel.name
    done = subprocess.run(
        [sys.executable, "-m", "auditwheel", "show", str(wheel)], capture_output=True, text=True
    )
    # auditwheel speaks of the next policy that it knows, which may be an older one than the name.
    policy = re.search(r'platform tag:\s+"manylinux_2_(\d+)_', done.stdout)
    assert policy, done.stdout + done.stderr
    assert int(policy[1]) <= int(found[1])


def test_the_installed_wheel_works_without_torch(dist: Path, tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target"]
    subprocess.run([*pip, str(tmp_path / "site"), str(only(dist, "*.whl"))], check=True)
    code = "import ooospec; print(ooospec.__file__, len(ooospec.DraftTree(7)))"
    out = check_python(code, "-S", cwd=tmp_path, PYTHONPATH=str(tmp_path / "site"))
    assert out.split() == [str(tmp_path / "site" / "ooospec" / "__init__.py"), "1"]


def test_windows_is_refused_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(SystemExit, match="does not support Windows; use Linux, or WSL"):
        runpy.run_path(str(ROOT / "setup.py"))


def test_a_missing_compiler_is_named(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "-b", str(tmp_path), "-t", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "CXX": "no-such-compiler"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "expected a C++20 compiler" in done.stderr
    assert "got no 'no-such-compiler'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_wrong_archs_of_the_cuda_core_are_refused() -> None:
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", "--name"],
        cwd=ROOT,
        env={**os.environ, "OOOSPEC_CUDA_ARCHS": "9.0"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "expected capabilities such as '80;90', or 'none', got '9.0'" in done.stderr


def test_there_is_one_version() -> None:
    assert version("ooospec") == ooospec.__version__
    assert ooospec.__version__ not in (ROOT / "pyproject.toml").read_text()
    assert ooospec.__version__ not in (ROOT / "setup.py").read_text()


# --- the files ----------------------------------------------------------------------------------


def source_files() -> list[Path]:
    folders = ("csrc", "python", "triton_kernels", "tests", "bench")
    kinds = (".py", ".pyi", ".cc", ".h", ".cu", ".cuh")
    found = [p for name in folders for p in (ROOT / name).rglob("*") if p.suffix in kinds]
    return [*found, ROOT / "setup.py", ROOT / "Makefile", ROOT / ".ci" / "run"]


def test_every_source_file_names_its_licence() -> None:
    without = [
        str(path.relative_to(ROOT))
        for path in source_files()
        if "SPDX-License-Identifier: Apache-2.0" not in "".join(path.read_text().splitlines()[:2])
    ]
    assert not without


CORE_LAYERS = {
    "common": {"common"},
    "ring": {"common", "ring"},
    "tree": {"common", "tree"},
    "call": {"common", "call"},
    "index": {"common", "index"},
    "cuda": {"common", "cuda"},
    "draft": {"common", "ring", "tree", "call", "index", "draft"},
    "wave": {"common", "ring", "call", "wave"},
    "bindings": {"common", "ring", "tree", "call", "index", "draft", "wave", "cuda", "bindings"},
}


def test_the_folders_of_the_core_include_downwards_only() -> None:
    for path in (ROOT / "csrc").rglob("*"):
        if path.suffix not in (".h", ".cc", ".cu", ".cuh"):
            continue
        folder = path.relative_to(ROOT / "csrc").parts[0]
        text = path.read_text()
        ours = re.findall(r'^\s*#\s*include "([^"]+)"', text, re.MULTILINE)
        assert {name.partition("/")[0] for name in ours} <= CORE_LAYERS[folder], path
        theirs = re.findall(r"^\s*#\s*include <([^>]+)>", text, re.MULTILINE)
        if folder != "bindings":
            foreign = re.compile(r"pybind11|torch|ATen|c10|Python\.h")
            assert not [name for name in theirs if foreign.match(name)], path


def module_name(path: Path) -> str:
    """Returns the name under which a file of the package is imported."""
    root, base = PACKAGE, "ooospec"
    if KERNELS in path.parents:
        root, base = KERNELS, "ooospec.triton_kernels"
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join([base, *(part for part in parts if part != "__init__")])


def imported_names(path: Path) -> set[str]:
    """Returns every absolute dotted name that a file imports when it runs, at any depth of it."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            node.body = []
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            names |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def package_imports() -> dict[str, set[str]]:
    """Returns the modules of ooospec that each module imports."""
    files = [*PACKAGE.rglob("*.py"), *KERNELS.rglob("*.py")]
    modules = {module_name(path) for path in files} | {"ooospec._C", "ooospec._C_cuda"}
    return {module_name(path): imported_names(path) & modules - {"ooospec"} for path in files}


def test_one_module_loads_the_core_and_one_the_kernels() -> None:
    for module, names in package_imports().items():
        compiled = names & {"ooospec._C", "ooospec._C_cuda"}
        assert not compiled or module == "ooospec._core", module
        kernels = {name for name in names if name.startswith("ooospec.triton_kernels")}
        may_know = f"{module}.".startswith(("ooospec.ops.", "ooospec.triton_kernels."))
        assert not kernels or may_know, module


def test_kernels_know_nothing_of_ours_but_each_other() -> None:
    for path in KERNELS.rglob("*.py"):
        ours = {name for name in imported_names(path) if name.split(".")[0] == "ooospec"}
        assert not {name for name in ours if not name.startswith("ooospec.triton_kernels.")}, path


PUBLIC_TRITON = {
    "triton",
    "triton.errors",
    "triton.knobs",
    "triton.language",
    "triton.language.extra.cuda",
    "triton.tools.tensor_descriptor",
}


def private_names_of_triton(source: str) -> list[str]:
    """Returns what a file uses of Triton beside what is public, the mended interpreter of tests
    apart.
    """
    tree = ast.parse(source)
    tree.body = [node for node in tree.body if getattr(node, "name", "") != "_mend_interpreter"]
    bound: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            bound |= {one.asname or one.name.split(".")[0]: one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom):
            bound |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
    bound = {name: what for name, what in bound.items() if what.split(".")[0] == "triton"}
    found = [
        what
        for what in bound.values()
        if what not in PUBLIC_TRITON
        and (what.rpartition(".")[0] not in PUBLIC_TRITON or "._" in what)
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
            found += [ast.unparse(node)] if ast.unparse(node).split(".")[0] in bound else []
    return found


def test_what_is_used_of_triton_is_public() -> None:
    """K08: the rest changes from version to version."""
    for path in [*PACKAGE.rglob("*.py"), *KERNELS.rglob("*.py")]:
        assert not private_names_of_triton(path.read_text()), path
    for source in ("import triton\ntriton.jit._run", "from triton.runtime import driver"):
        assert private_names_of_triton(source)


def test_torch_chooses_the_version_of_triton() -> None:
    """K08: torch's builds for GPUs ask for one Triton; we ask for none beside it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    asked = sum((extras[name] for name in extras if name != "test"), project["dependencies"])
    assert any(one.startswith("torch") for one in asked)
    assert not [one for one in asked if one.startswith("triton")]


@pytest.mark.parametrize("top", ["cli", "integrations", "bench", "serve"])
def test_what_stands_on_top_is_known_to_the_command_line_alone(top: str) -> None:
    """Benches, servers, plugs and commands use the engine; none of them uses another."""
    for module, names in package_imports().items():
        known = {name for name in names if name.startswith(f"ooospec.{top}")}
        is_command = module.startswith("ooospec.cli.") or module.endswith(".__main__")
        assert not known or is_command or module.startswith(f"ooospec.{top}"), (module, known)


def test_no_module_imports_itself_by_way_of_others() -> None:
    imports = package_imports()

    def below(module: str) -> set[str]:
        found: set[str] = set()
        waiting = [module]
        while waiting:
            new = imports.get(waiting.pop(), set()) - found
            found |= new
            waiting += new
        return found

    for module in imports:
        assert module not in below(module), f"{module} imports itself by way of others"


def test_benches_use_the_public_api() -> None:
    for path in (ROOT / "bench").glob("*.py"):
        ours = [name for name in imported_names(path) if name.split(".")[0] == "ooospec"]
        private = [name for name in ours if any(part.startswith("_") for part in name.split("."))]
        assert not private, path


def test_no_module_sets_environment_variables() -> None:
    setter = re.compile(r"environ\[[^]]+\]\s*=[^=]|environ\.(setdefault|update|pop|clear)|putenv")
    for path in [*PACKAGE.rglob("*.py"), *KERNELS.rglob("*.py")]:
        assert not setter.search(path.read_text()), path
