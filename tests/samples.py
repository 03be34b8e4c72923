"""Random examples of what is observed."""

import numpy as np


def sample_field(field, rng):
    if field.kind == "vector":
        return rng.normal(size=field.shape).astype(np.float32)
    limits = len(field.vocabulary) if field.kind == "words" else field.sizes if field.shape else field.sizes[0]
    return np.asarray(rng.integers(0, np.broadcast_to(limits, field.array_shape))).astype(field.dtype)
