"""Two test workers share two cores: one thread each, or spinning threads cost more than they give."""

from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture
def entries_restored():
    """What a file enters into the dicts of what ships is taken out again."""
    from genplan.data.transforms import TRANSFORMS
    from genplan.models.codecs import CODECS
    from genplan.models.encoders import ENCODERS

    before = [(entries, dict(entries)) for entries in (CODECS, ENCODERS, TRANSFORMS)]
    yield
    for entries, kept in before:
        entries.clear()
        entries.update(kept)


# What starts processes, trains, plays many episodes or drives a browser: left out of `make quick`.
SLOW = (
    "bench", "conformance", "report", "serve/test_browser.py", "data/test_store.py", "data/test_adapters.py",
    "models/test_codecs.py", "test_claims.py", "test_cli.py", "test_collect.py", "test_devices.py", "test_docs.py",
    "test_examples.py", "test_jobs.py", "test_methods.py", "test_own_robot.py", "test_package.py", "test_parts.py",
    "test_pretrained.py", "test_quickstart.py", "test_ring.py", "test_runs.py", "test_security.py", "test_tampering.py",
    "test_verify.py",
)  # fmt: skip


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.relative_to(Path(__file__).parent).as_posix().startswith(SLOW):
            item.add_marker(pytest.mark.slow)
