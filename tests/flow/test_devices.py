"""Everything follows the device of its inputs: no tensor is created without naming a device."""

import itertools

import pytest
import torch
from torch.overrides import TorchFunctionMode

from genplan.flow import EntropyBound, Order, ProbPath, Rng, Source, denoising_loss, entropy, sample

FACTORIES = {
    *(torch.arange, torch.as_tensor, torch.empty, torch.eye, torch.full, torch.linspace, torch.ones, torch.rand),
    *(torch.randint, torch.randn, torch.randperm, torch.scalar_tensor, torch.tensor, torch.zeros),
}


class RefuseDefaultDevice(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        assert function not in FACTORIES or kwargs.get("device") is not None, (
            f"torch.{function.__name__} without device="
        )
        return function(*args, **kwargs)


def test_the_guard_notices():
    with RefuseDefaultDevice(), pytest.raises(AssertionError, match=r"torch\.zeros without device="):
        torch.zeros(3)


@pytest.mark.parametrize("source", Source)
def test_no_factory_without_a_device(source):
    device = torch.device("cpu")
    path = ProbPath({"a": 5, "b": 3}, source)
    table = {name: torch.randn(path.num_states(name), size) for name, size in path.sizes.items()}
    known = torch.arange(4, device=device) == 0

    def network(x_t, t):
        return {name: table[name][x] for name, x in x_t.items()}

    with RefuseDefaultDevice():
        rng = Rng.of(0, batch=(6,), device=device)
        x_1 = {"a": rng.fold("a").integers(5, (4,)), "b": rng.fold("b").integers(3, (4, 2))}
        given = {"a": known.expand(6, 4)}
        t = rng.fold("t").uniform()
        x_t = path.corrupt(x_1, t, rng, given)
        logits = network(x_t, t)
        denoising_loss(path, logits, x_1, x_t, given=given)
        bound = EntropyBound(0.5, device=device)
        bound.update(entropy(logits["a"]))
        for order, eta, steps in itertools.product(set(Order) - {Order.CHAIN}, (0.0, 0.5), (3, [0.5, 1.0])):
            x_0 = path.corrupt(x_1, 0.0, rng, given)
            options = {"top_p": 0.9, "given": given, "keep_trace": True}
            sample(path, network, x_0, rng, steps=steps, order=order, eta=eta, temperature={"a": 0.0}, **options)
