"""Two test workers share two cores: one thread each, or spinning threads cost more than they give."""

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
