"""Operations with several results of other shapes: no trial may end the comparison."""

import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from parity.verifier.compare import compare


class Divided(nn.Module):
    """A weight by its length along an axis, or what else is made of direction and length."""

    def __init__(self, normed, made):
        super().__init__()
        held = normed.parametrizations.weight
        self.g, self.v = (
            nn.Parameter(each.detach().clone()) for each in (held.original0, held.original1)
        )
        self.bias, self.made = nn.Parameter(normed.bias.detach().clone()), made

    def forward(self, x):
        return torch.tanh(x @ self.made(self.v, self.g).T + self.bias)


def against(made):
    torch.manual_seed(0)
    normed = weight_norm(nn.Linear(6, 6))
    with torch.no_grad():
        scale = torch.linspace(0.5, 2, 6)[:, None]
        normed.get_parameter("parametrizations.weight.original0").mul_(scale)
    model = nn.Sequential(normed, nn.Tanh())
    return compare((model, x := torch.randn(3, 6)), (Divided(normed, made), x))


def test_weight_norm_along_the_other_axis_is_named():
    assert against(lambda v, g: g * v / v.norm(dim=1, keepdim=True)).equal
    found = against(lambda v, g: g * v / v.norm(dim=0, keepdim=True))
    assert found.causes == ("axis",)


def test_another_operation_than_one_with_several_results_is_a_difference():
    assert against(torch.atan2).verdict == "DIFFERENT"
