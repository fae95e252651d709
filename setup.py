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
# The hot path, by folder: everything in these packages is compiled but what is listed after them.
COMPILED = ("wire", "core")
COMPILED_FILES = (
    "units.py",
    "channel/channel.py",
    "channel/base/consumer.py",
    "channel/base/dependency.py",
    "channel/base/event.py",
    "channel/base/filtering.py",
    "channel/base/measure.py",
    "channel/dispatch/aio.py",
    "channel/dispatch/dispatcher.py",
    "channel/dispatch/lane.py",
    "channel/dispatch/lanes.py",
    "node/adapter.py",
    "node/attachment.py",
    "node/connection.py",
    "node/driver.py",
    "node/flows.py",
    "node/input.py",
    "node/journal_columns.py",
    "node/link.py",
    "node/meter.py",
    "node/outgoing.py",
    "node/pacing.py",
    "node/publisher.py",
    "node/tcp_info.py",
    "node/tls.py",
    "node/trace_pack.py",
    "node/translate.py",
    "bench/counting.py",
    "sim/cluster.py",
    "sim/draws.py",
    "sim/faults.py",
    "sim/kernel.py",
    "sim/network.py",
    "sim/workload.py",
)
# Parsers and calculations that run once per request, not once per message: not worth the build's time.
NOT_COMPILED = (
    "core/correlation_text.py",
    "core/matrices.py",
    "core/schedulability.py",
    "wire/reasons.py",
)
# What a simulation spends its time in, by how the names of its C files begin, and mypyc's own functions:
# optimised further than the rest, which saves a seventh of a run.
HOT = (
    "core___delay",
    "core___lane",
    "core___mesh",
    "core___queue",
    "core___routing",
    "core___strategy",
    "sim_",
)
HOT_OPTION = "-O2"
# The steps of a build that need the extensions; the others only ask for the package's name and version.
BUILDING = {"bdist_wheel", "build", "build_ext", "editable_wheel", "install"}


def compiled_sources() -> list[str]:
    package = HERE / "src" / "timebound"
    found = [package / name for name in COMPILED_FILES]
    for folder in COMPILED:
        found += sorted((package / folder).rglob("*.py"))
    kept = [path for path in found if path.exists() and path.name != "__init__.py"]
    return [
        str(path.relative_to(HERE)) for path in kept if str(path.relative_to(package)) not in NOT_COMPILED
    ]


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
    sources = compiled_sources()
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
            if is_hot(source):
                options = {**options, "extra_postargs": [*(options.get("extra_postargs") or []), HOT_OPTION]}
            return list(compile_some([source], **options))

        def compile_all(sources: list[str], **options: Any) -> list[str]:
            with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
                compiled = pool.map(lambda source: compile_one(source, options), sources)
                return [name for names in compiled for name in names]

        self.compiler.compile = compile_all
        super().build_extensions()


setup(ext_modules=extensions(), cmdclass={"build_ext": ParallelBuild})
