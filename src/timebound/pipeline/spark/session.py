"""Spark sessions: embedded on this machine, on a cluster, or behind Spark Connect.

    spark_session()                          local[*], options for a small machine
    spark_session(master="spark://...")      a cluster, with its own options
    spark_session(remote="sc://...")         Spark Connect; also by SPARK_REMOTE

Under spark-submit its session is used. The output of Java goes to a file, whose end is shown if Spark
does not start: commands should not print Java's warnings about modules.
"""

from __future__ import annotations

import atexit
import contextlib
import enum
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from timebound.errors import ConfigError
from timebound.packages import FOR_SPARK, require
from timebound.pipeline.spark.java import check_java, find_java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL_MASTER: Final = "local[*]"
DRIVER_MEMORY: Final = "2g"
LOG_LINES_SHOWN: Final = 12
# Stopping a query from inside foreachBatch overflowed the default stack in four of six cases. Spark generates
# long methods for many sums at once, and Java does not compile long methods by default.
_JAVA_OPTIONS: Final = "-Xss8m -XX:+UseSerialGC -XX:-DontCompileHugeMethods -XX:+IgnoreUnrecognizedVMOptions"
# The second compiler pays off after about a minute of work; without it the start takes half as long.
_JAVA_OPTIONS_SHORT: Final = _JAVA_OPTIONS + " -XX:TieredStopAtLevel=1"

# For few rows, generating and compiling Java code costs more than it saves, and so does a second
# task per stage.
_FEW_ROWS_OPTIONS: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
    # With one task per stage there is nothing to adapt, and every stage would be a job of its own.
    "spark.sql.adaptive.enabled": "false",
}
# Files with most of the classes that a session loads. Java searches the 280 files of Spark in the order of
# their folder; with these first, a cold run of the pipeline took 19 s of processor time, not 22.
_CLASSES_FIRST: Final = (
    *("spark-catalyst", "spark-core", "scala-library", "spark-sql", "spark-sql-api", "scala-reflect"),
    *("hadoop-client-api", "parquet-column", "log4j-core", "jackson-databind", "spark-config"),
    *("spark-network-common", "hadoop-client-runtime", "parquet-jackson", "arrow-vector", "parquet-encoding"),
    *("parquet-format-structures", "netty-common", "spark-common-utils", "log4j-api"),
)

# For every session. Traces count nanoseconds since the epoch, in UTC.
_SQL_OPTIONS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Recording the source line of every column took a fifth of a small run.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # A reader with pushFilters fails its query when this is off, which is the default.
    "spark.sql.python.filterPushdown.enabled": "true",
    # Listing 5,000 small files took 33 to 58 s as a Spark job, 6.5 s in the driver.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    # A batch without rows would only clear state, which the next batch with rows does as well.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}
# For a small machine in interactive use.
_LOCAL_OPTIONS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": DRIVER_MEMORY,
    "spark.sql.adaptive.enabled": "true",
    # On a busy machine, Python workers take longer to start than the default of 15 s.
    "spark.python.authenticate.socketTimeout": "120s",
}


class Scale(enum.Enum):
    """The amount of work for Spark: optimisations that pay off for long runs only cost in short ones."""

    FEW_ROWS = enum.auto()  # tens of thousands; a sweep has some hundred, however long its runs take
    SHORT = enum.auto()  # about a minute
    LONG = enum.auto()


def spark_session(
    master: str | None = None,
    remote: str | None = None,
    app: str = "timebound",
    *,
    scale: Scale = Scale.SHORT,
    options: Mapping[str, str] | None = None,
) -> SparkSession:
    """Start Spark, or connect to the given master or remote.

    `options` are applied last. A process has one session: a second call returns the first.

    Raises:
        ConfigError: Spark or Java is missing, both a master and a remote are given, or Spark does not start.
    """
    if master and remote:
        raise ConfigError(f"both a master ({master}) and a remote ({remote}) are given; give one")
    require("Spark", *FOR_SPARK)
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder.appName(app)
    for name, value in _SQL_OPTIONS.items():
        builder = builder.config(name, value)
    options = {**(_FEW_ROWS_OPTIONS if scale is Scale.FEW_ROWS else {}), **(options or {})}
    remote = _remote_of(master, remote)
    if remote is not None:
        return _start(_with(builder.remote(remote), options), None)
    if _is_submitted():
        return _start(_with(builder, options), None)
    work_directory = _work_directory()
    _prepare_environment(work_directory)
    builder = _with(builder, _own_options(master, work_directory, scale))
    return _start(_with(builder, options), work_directory / "spark.log")


def check_spark(master: str | None = None, remote: str | None = None) -> None:
    """Check that `spark_session` will find its packages and Java, before other work begins.

    Raises:
        ConfigError: something is missing; names what to install.
    """
    require("Spark", *FOR_SPARK)
    if _remote_of(master, remote) is None and not _is_submitted():
        check_java()


def _remote_of(master: str | None, remote: str | None) -> str | None:
    return remote or (None if master else os.environ.get("SPARK_REMOTE"))


def _is_submitted() -> bool:
    """Whether this runs under spark-submit, which has started Java."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def cores_of(spark: SparkSession) -> int:
    """Return the number of parallel tasks; with Connect, where it is unknown, that of this machine."""
    if is_remote(spark):
        return os.cpu_count() or 1
    return spark.sparkContext.defaultParallelism


def is_remote(spark: SparkSession) -> bool:
    """Whether this is a Spark Connect session, which has no SparkContext."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def _with(builder: Any, options: Mapping[str, str]) -> Any:
    for name, value in options.items():
        builder = builder.config(name, value)
    return builder


def _own_options(master: str | None, work_directory: Path, scale: Scale) -> dict[str, str]:
    if master is not None and not master.startswith("local"):
        return {"spark.master": master}
    # A local-cluster has its own executors, but the driver is this process in both cases.
    java_options = _JAVA_OPTIONS if scale is Scale.LONG else _JAVA_OPTIONS_SHORT
    class_path = _class_path(Path(os.environ.get("SPARK_HOME", "")) / "jars")
    return {
        "spark.master": master or LOCAL_MASTER,
        **_LOCAL_OPTIONS,
        "spark.sql.shuffle.partitions": str(_cores(master)),
        "spark.default.parallelism": str(_cores(master)),
        "spark.driver.extraJavaOptions": java_options,
        "spark.executor.extraJavaOptions": java_options,
        "spark.driver.extraClassPath": class_path,
        "spark.executor.extraClassPath": class_path,
        "spark.local.dir": str(work_directory / "local"),
        "spark.sql.warehouse.dir": str(work_directory / "warehouse"),
    }


def _class_path(jars: Path) -> str:
    """Return the class path: the files to search first, then all others."""
    found = [sorted(jars.glob(f"{name}[_-][0-9]*.jar")) for name in _CLASSES_FIRST]
    return os.pathsep.join(str(path) for paths in found for path in paths)


def _cores(master: str | None) -> int:
    """Return the cores of a local master: `local[2]`, `local[2,3]`, `local-cluster[2,1,1024]`."""
    inside = (master or LOCAL_MASTER).partition("[")[2].partition("]")[0].split(",")
    counts = [int(word) for word in inside if word.strip().isdecimal()]
    if master is not None and master.startswith("local-cluster") and len(counts) >= 2:
        return counts[0] * counts[1]
    return counts[0] if counts and inside[0] != "*" else os.cpu_count() or 1


def _work_directory() -> Path:
    directory = Path(tempfile.mkdtemp(prefix="timebound-spark-"))
    # Registered before Spark's own handler, so it runs after: Java has ended by then.
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


def _prepare_environment(work_directory: Path) -> None:
    """Select Java and the Python of workers by environment variables, which both inherit."""
    java_home = find_java_home(work_directory)
    if java_home is not None:
        os.environ["JAVA_HOME"] = str(java_home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if "SPARK_HOME" not in os.environ and os.environ["PYSPARK_PYTHON"] == sys.executable:
        os.environ["SPARK_HOME"] = str(_own_home(work_directory / "home"))


def _own_home(home: Path) -> Path:
    """Make a home for Spark like that of the package, without two parts that only cost time.

    `python` has a zipped copy of pyspark. Workers would import that one first and compile it in every
    process: 1.5 s of processor time instead of 0.4. Readers, writers and streams in Python start several
    kinds of workers, and Spark gives up on a stream's worker after 10 s, which no option changes.
    The machine learning library registers its functions in every session, by reflection: without it the
    start takes 4.5 s of processor time instead of 7.2, and nothing here uses it.
    """
    import pyspark

    package = Path(pyspark.__file__).parent
    (home / "jars").mkdir(parents=True)
    for name in ("bin", "sbin"):
        (home / name).symlink_to(package / name)
    for jar in (package / "jars").iterdir():
        if not jar.name.startswith("spark-mllib_"):
            (home / "jars" / jar.name).symlink_to(jar)
    return home


def _start(builder: Any, log_path: Path | None) -> SparkSession:
    try:
        if log_path is None:
            session = builder.getOrCreate()
        else:
            with _errors_to(log_path):
                session = builder.getOrCreate()
    except Exception as error:  # Spark raises any kind of error
        raise ConfigError(f"Spark did not start: {_first_line(error)}{_end_of(log_path)}") from error
    started: SparkSession = session
    return started


@contextlib.contextmanager
def _errors_to(path: Path) -> Iterator[None]:
    """Redirect standard error of child processes to a file; those started inside keep it."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with path.open("ab") as log:
            os.dup2(log.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _end_of(log_path: Path | None) -> str:
    if log_path is None or not log_path.exists():
        return ""
    lines = log_path.read_text(errors="replace").splitlines()
    return "\n  ".join(["; Java said:", *lines[-LOG_LINES_SHOWN:]]) if lines else ""
