"""Bodies of networks."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ludus.core.errors import PolicyError
from ludus.policies.bodies import body_config, make_body, orthogonal


def test_a_perceptron_flattens_and_activates_every_layer():
    body, features = make_body(body_config(hidden=(5, 3), activation="relu"), (2, 4))
    assert features == 3
    assert [type(layer).__name__ for layer in body] == ["Flatten", "Linear", "ReLU", "Linear", "ReLU"]
    assert body(torch.randn(7, 2, 4)).shape == (7, 3)
    assert (body(torch.randn(7, 2, 4)) >= 0).all()


def test_no_hidden_layers_are_the_observation_itself():
    body, features = make_body(body_config(hidden=()), (4,))
    x = torch.randn(3, 4)
    assert features == 4
    assert torch.equal(body(x), x)


@pytest.mark.parametrize(("kind", "features"), [("nature", 512), ("impala", 256)])
def test_images(kind, features):
    body, width = make_body(body_config(kind), (3, 36, 40), scale=1 / 255)
    assert width == features
    images = torch.randint(0, 256, (2, 3, 36, 40)).float()
    assert body(images).shape == (2, features)
    plain, _ = make_body(body_config(kind), (3, 36, 40))
    plain.load_state_dict({name.replace(name[0], str(int(name[0]) - 1), 1): w for name, w in body.state_dict().items()})
    assert torch.allclose(body(images), plain(images / 255), atol=1e-5)


def test_gradients_reach_every_layer_of_the_residual_network():
    body, _ = make_body(body_config("impala"), (1, 16, 16))
    orthogonal(body)
    body(torch.randn(2, 1, 16, 16)).sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in body.parameters())


def test_orthogonal_weights_have_their_gain_and_no_bias():
    layer = orthogonal(nn.Linear(8, 3), 2.0)
    assert torch.allclose(layer.weight @ layer.weight.T, 4.0 * torch.eye(3), atol=1e-5)
    assert not layer.bias.any()


@pytest.mark.parametrize(
    ("config", "shape", "message"),
    [
        ({"kind": "resnet"}, (4,), "body is 'resnet'; expected one of"),
        ({"kind": "nature"}, (4,), r"observations have shape \(4,\). Use 'mlp'"),
        ({"kind": "nature"}, (1, 8, 8), r"images of shape \[1, 8, 8\] are too small for the 'nature'"),
        ({"kind": "mlp", "hidden": [0]}, (4,), r"hidden layers are \[0\]"),
        (
            {"kind": "mlp", "hidden": [3], "activation": "gelu"},
            (4,),
            "activation is 'gelu'; expected one of tanh, relu",
        ),
    ],
)
def test_wrong_configurations(config, shape, message):
    with pytest.raises(PolicyError, match=message):
        make_body(config, shape)
