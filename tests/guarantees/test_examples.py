"""Every example of every guarantee through the checker; tests/audit/test_examples.py holds the SQL against the same ones."""

from __future__ import annotations

import re

import pytest

from tests.audit.histories_of_examples import EXAMPLES, history_of
from transis.audit.guarantees import PROPERTIES, check
from transis.audit.guarantees.property import BROKEN, HELD


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_checker_says_what_the_example_says(name: str) -> None:
    one, example = EXAMPLES[name]
    verdict = check(history_of(example)).verdicts[one.name]
    told = [violation.explanation for violation in verdict.violations]
    assert verdict.verdict == example.verdict, told
    assert not example.says or example.says in told, told


@pytest.mark.parametrize("name", [one.name for one in PROPERTIES.values() if one.sql])
def test_every_sentence_has_an_example_that_breaks_it_and_some_keep_it(name: str) -> None:
    one = PROPERTIES[name]
    assert HELD in {example.verdict for example in one.examples}
    told = [example.says for example in one.examples if example.verdict == BROKEN]
    for kind, sentence in one.broken.items():
        assert any(fits(sentence, words) for words in told), f"no example breaks {kind}: {sentence}"


def fits(sentence: str, words: str) -> bool:
    """Are these words the sentence with its gaps filled?"""
    return re.fullmatch(re.sub(r"\\\{\w+\\\}", ".+", re.escape(sentence)), words) is not None
