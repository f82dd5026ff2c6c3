"""The packaged job: the same bytes each time, all of our Python inside, and `spark-submit` runs it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.house.sources import PACKAGE, python_files
from tests.spark.cluster import spark_environment, spark_submit
from tests.spark.programs import PATIENCE_S
from transis.cli.main import app
from transis.spark.cluster import ENTRY, write_archive, write_job

SUBMITTED = """
from transis.spark.session import spark_session

with spark_session() as session:
    print(session.conf.get("spark.master"), session.conf.get("spark.sql.session.timeZone"), session.range(1000).count())
raise SystemExit(3)
"""


def test_all_of_the_package_is_inside(tmp_path: Path) -> None:
    archive, entry = write_job(tmp_path / "new" / "place")
    with zipfile.ZipFile(archive) as opened:
        inside = set(opened.namelist())
    assert {f"transis/{path.relative_to(PACKAGE).as_posix()}" for path in python_files("src/transis")} <= inside
    assert [name for name in inside if "__pycache__" in name] == []
    compile(entry.read_text(), str(entry), "exec")


def test_the_same_package_makes_the_same_bytes(tmp_path: Path) -> None:
    assert write_archive(tmp_path / "a.zip").read_bytes() == write_archive(tmp_path / "b.zip").read_bytes()


def test_the_zip_alone_is_enough_to_import_it(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "job.zip")
    program = f"import sys; sys.path.insert(0, {str(archive)!r}); import transis.audit.plans.lay as it; print(it.__file__)"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert found.stdout.startswith(str(archive))


def test_the_command_says_how_to_submit_it(tmp_path: Path) -> None:
    outcome = CliRunner().invoke(app, ["package-job", "--out", str(tmp_path)])
    assert outcome.exit_code == 0
    assert outcome.stdout.startswith("spark-submit --master spark://")
    assert str(tmp_path / ENTRY) in outcome.stdout


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    outcome = CliRunner().invoke(app, ["package-job", "--out", str(tmp_path / "file" / "below")])
    assert outcome.exit_code == 2
    assert "cannot be written" in outcome.stderr
    assert "Traceback" not in outcome.stderr


@pytest.mark.slow
def test_spark_submit_runs_a_program_with_the_zip(standalone_cluster: str, tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "job.zip")
    program = tmp_path / "job.py"
    program.write_text(SUBMITTED)
    command = [*spark_submit(standalone_cluster), "--py-files", str(archive), str(program)]
    env = spark_environment() | {"TMPDIR": str(tmp_path)}
    ended = subprocess.run(command, capture_output=True, text=True, env=env, cwd=tmp_path, timeout=PATIENCE_S, check=False)
    assert ended.stdout.split() == [standalone_cluster, "UTC", "1000"], ended.stderr
    assert ended.returncode == 3
