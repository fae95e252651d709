"""Build timebound, with its hot modules compiled by mypyc where a C compiler is at hand.

Everything else about the package stands in pyproject.toml. Without a compiler, or with
TIMEBOUND_PURE=1, the same sources are installed as plain Python: slower, but the reference.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).parent
PACKAGE = HERE / "src" / "timebound"
# The hot path, by folder: everything in these packages is compiled but what is listed after them.
COMPILED = ("wire", "core")
COMPILED_FILES = (
    "bench/counting.py",
    "channel/base/consumer.py",
    "channel/base/dependency.py",
    "channel/base/event.py",
    "channel/base/filtering.py",
    "channel/base/measure.py",
    "channel/carrier.py",
    "channel/channel.py",
    "channel/dispatch/aio.py",
    "channel/dispatch/dispatcher.py",
    "channel/dispatch/lane.py",
    "channel/dispatch/lanes.py",
    "linking/link.py",
    "linking/mesh.py",
    "linking/packs.py",
    "node/clients/adapter.py",
    "node/clients/connection.py",
    "node/clients/output.py",
    "node/clients/tls.py",
    "node/driver.py",
    "node/input/buffer.py",
    "node/input/input.py",
    "node/input/reader.py",
    "node/journal/columns.py",
    "node/links/meter.py",
    "node/links/pacing.py",
    "node/links/tcp_info.py",
    "node/mesh/connection.py",
    "node/mesh/reader.py",
    "node/trace/pack.py",
    "sim/kernel/draws.py",
    "sim/kernel/kernel.py",
    "sim/mesh/cluster.py",
    "sim/mesh/faults.py",
    "sim/mesh/network.py",
    "sim/mesh/workload.py",
    "sim/papers/brokers/forwarding.py",
    "sim/papers/brokers/lifetime.py",
    "outgoing.py",
    "topics.py",
    "translate.py",
    "units.py",
)
# Parsers and calculations that run once per request, not once per message: not worth the build's time.
NOT_COMPILED = (
    "core/correlation/text.py",
    "core/input/matrices.py",
    "core/input/options.py",
    "core/input/schedulability.py",
    "core/mesh/reservation/messages.py",
    "wire/reasons.py",
)
# What a message or a simulation spends its time in, by how the names of its C files begin, and mypyc's own
# functions: optimised further than the rest, which saves a seventh of a simulation.
HOT = (
    "core___account___account",
    "core___distribution",
    "core___input___entrance",
    "core___input___scheduler",
    "core___link___lane",
    "core___link___outlet",
    "core___link___queue",
    "core___link___strategy",
    "core___matching___index",
    "core___mesh",
    "core___publishing",
    "core___sessions",
    "core___values",
    "node___clients",
    "node___driver",
    "node___input",
    "outgoing",
    "sim___",
    "wire___codec",
    "wire___encode",
    "wire___packets",
    "wire___primitives",
    "wire___publish",
)
HOT_OPTION = "-O2"
# Calls from one C file to another then need no table: nothing outside the library knows these functions.
ALL_OPTION = "-fvisibility=hidden"
# The steps of a build that need the extensions; the others only ask for the package's name and version.
BUILDING = {"bdist_wheel", "build", "build_ext", "editable_wheel", "install"}


def compiled_sources(package: Path = PACKAGE) -> list[str]:
    """Return the files to compile, relative to the package.

    Raises:
        SystemExit: one of the lists names something that does not exist.
    """
    found = list(COMPILED_FILES)
    for folder in COMPILED:
        names = sorted(path.relative_to(package).as_posix() for path in (package / folder).rglob("*.py"))
        if not names:
            raise SystemExit(f"setup.py: COMPILED names the folder {folder!r}, which has no modules")
        found += names
    for name in COMPILED_FILES:
        if not (package / name).is_file():
            raise SystemExit(f"setup.py: COMPILED_FILES names {name!r}, which does not exist")
    for name in NOT_COMPILED:
        if name not in found:
            raise SystemExit(f"setup.py: NOT_COMPILED names {name!r}, which is not compiled anyway")
    kept = [name for name in found if not name.endswith("__init__.py") and name not in NOT_COMPILED]
    c_names = [name.removesuffix(".py").replace("/", "___") for name in kept]
    for prefix in HOT:
        if not any(c_name.startswith(prefix) for c_name in c_names):
            raise SystemExit(f"setup.py: HOT names {prefix!r}, with which no compiled module begins")
    return kept


def has_compiler() -> bool:
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    return shutil.which(compiler) is not None


def extensions() -> list[object]:
    if os.environ.get("TIMEBOUND_PURE") == "1" or not BUILDING.intersection(sys.argv):
        return []
    if not has_compiler():
        print("timebound: no C compiler found; installing uncompiled (slower)", file=sys.stderr)
        return []
    # mypyc reads its module names from the path, relative to the source root.
    from mypyc.build import mypycify

    os.environ.setdefault("MYPYPATH", str(HERE / "src"))
    sources = [(PACKAGE / name).relative_to(HERE).as_posix() for name in compiled_sources()]
    return list(
        mypycify(
            # Only these modules are judged here; `make check` has the rest.
            ["--config-file=", "--follow-imports=silent", "--ignore-missing-imports", *sources],
            opt_level=os.environ.get("TIMEBOUND_OPT", "1"),
            debug_level="0",
            multi_file=True,
        )
    )


def is_hot(source: str) -> bool:
    name = Path(source).name
    return name.endswith("_ops.c") or name.removeprefix("__native_timebound___").startswith(HOT)


class ParallelBuild(build_ext):
    """Compiles as many C files at the same time as there are cores, of one extension or of several."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count() or 1

    def build_extensions(self) -> None:
        compile_some = self.compiler.compile

        def compile_one(source: str, options: dict[str, Any]) -> list[str]:
            added = [ALL_OPTION, HOT_OPTION] if is_hot(source) else [ALL_OPTION]
            options = {**options, "extra_postargs": [*(options.get("extra_postargs") or []), *added]}
            return list(compile_some([source], **options))

        def compile_all(sources: list[str], **options: Any) -> list[str]:
            with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
                compiled = pool.map(lambda source: compile_one(source, options), sources)
                return [name for names in compiled for name in names]

        self.compiler.compile = compile_all
        super().build_extensions()


if __name__ == "__main__":
    setup(ext_modules=extensions(), cmdclass={"build_ext": ParallelBuild})
