"""Two test workers share two cores: one thread each, or spinning threads cost more than they give."""

import torch

torch.set_num_threads(1)
