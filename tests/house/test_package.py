"""The package as it is installed: assertions on, and every dependency locked to one version and its hashes."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib

from tests.house.sources import ROOT

LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def import_transis(*flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *flags, "-c", f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r}); import transis"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_assertions_cannot_be_switched_off() -> None:
    refused = import_transis("-O")
    assert refused.returncode != 0
    assert "refuses to run with assertions off" in refused.stderr
    assert import_transis().returncode == 0


def test_every_dependency_is_locked() -> None:
    locked = set(re.findall(r"^([a-z0-9-]+)==\S+", LOCK, flags=re.MULTILINE))
    wanted = [*PROJECT["dependencies"], *(name for extra in PROJECT["optional-dependencies"].values() for name in extra)]
    assert {re.split(r"[^\w-]", name)[0] for name in wanted} - locked == set()


def test_every_locked_version_has_hashes() -> None:
    entries = re.split(r"^(?=[a-z])", LOCK, flags=re.MULTILINE)
    assert [entry.split()[0] for entry in entries if entry and "--hash=sha256:" not in entry] == []
