"""Replicas: the audit says what the checkers say, of good histories and of bad ones of every kind."""

from __future__ import annotations

import pytest

from tests.audit.agreement import disagreements
from tests.audit.together import histories_for
from transis.audit.guarantees import REPLICA_PROPERTIES
from transis.audit.plans.finding import Result

pytestmark = pytest.mark.slow


def test_the_audit_and_the_checkers_agree(audit: Result) -> None:
    assert disagreements(histories_for("replicas"), audit, REPLICA_PROPERTIES) == []
