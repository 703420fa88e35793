"""The harness of `make soak`: that it sees what goes wrong, and a few trials of what is read quickly."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from soak import mutations, page
from soak.material import made
from soak.pool import Tally, trials
from soak.readers import READERS


def test_a_broken_file_is_a_function_of_the_seed_and_the_number() -> None:
    content = (Path(__file__).parents[1] / "attacks" / "guo2019.toml").read_bytes()
    made_twice = [
        [mutations.broken_text(content, mutations.generator(seed, "suites", number), "toml") for number in range(50)]
        for seed in (0, 0, 1)
    ]
    assert made_twice[0] == made_twice[1]
    assert made_twice[0] != made_twice[2]
    assert len({broken for _, broken in made_twice[0]}) > 40


def test_a_seal_can_be_made_right_again() -> None:
    content = (Path(__file__).parents[1] / "zoo" / "weights" / "lenet1-digits-torch-default-0.h5").read_bytes()
    assert mutations.reseal(content) == content
    block, rest = content[:512], content[512:]
    changed = rest[:2000] + b"\x07" + rest[2001:]
    assert mutations.reseal(block + changed) == block.replace(sha256(rest), sha256(changed)) + changed
    assert mutations.reseal(rest + block) == rest + block
    assert mutations.reseal(changed + block) == changed + block.replace(sha256(rest), sha256(changed))
    assert mutations.reseal(changed) == changed


def sha256(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


def test_what_was_counted_is_what_the_page_says() -> None:
    results = json.loads(page.RESULTS.read_text(encoding="utf-8")) if page.RESULTS.exists() else {}
    if not results:
        pytest.skip("make soak has not been run")
    assert page.tables(results) in page.PAGE.read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
def test_broken_files_are_refused_or_read(reader: str, tmp_path: Path) -> None:
    tally = Tally()
    trials(reader, made(tmp_path, [READERS[reader].part]), 20, seed=1, workers=1, tally=tally)
    assert tally.outcomes.total() == 20
    assert not tally.findings
