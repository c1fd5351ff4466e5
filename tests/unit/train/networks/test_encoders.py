from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from tiny_envs import OBSERVATION_SPACES

from envfleet.train.networks.encoders import ImageEncoder, Normalizer, VectorEncoder, encoder
from envfleet.train.observations import to_tensors

CPU = torch.device("cpu")


def sample(space: spaces.Space[Any], batch: int = 4) -> Any:
    batched = batch_space(space, batch)
    batched.seed(0)
    return to_tensors(batched.sample(), CPU)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("name", list(OBSERVATION_SPACES))
def test_features_are_numbers_in_rows(name: str, normalize: bool) -> None:
    module = encoder(OBSERVATION_SPACES[name], normalize=normalize)
    observations = sample(OBSERVATION_SPACES[name])
    module.observe(observations)
    features = module(observations)
    assert features.shape == (4, module.features)
    assert features.dtype == torch.float32
    assert torch.isfinite(features).all()


def test_vectors_are_taken_as_they_are() -> None:
    observations = sample(OBSERVATION_SPACES["matrix"])
    features = encoder(OBSERVATION_SPACES["matrix"], normalize=False)(observations)
    torch.testing.assert_close(features, observations.reshape(4, 6).float())


def test_discrete_numbers_become_rows_with_one_1_counted_from_their_start() -> None:
    module = encoder(spaces.Discrete(3, start=-1), normalize=True)
    assert module(torch.tensor([-1, 0, 1])).tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]


def test_several_discrete_numbers_have_a_block_each() -> None:
    module = encoder(spaces.MultiDiscrete([[2], [3]], start=[[1], [-2]]), normalize=True)
    assert module(torch.tensor([[[1], [0]], [[2], [-2]]])).tolist() == [[1, 0, 0, 0, 1], [0, 1, 1, 0, 0]]


def test_switches_are_never_normalised() -> None:
    module = encoder(spaces.MultiBinary(2), normalize=True)
    observations = torch.tensor([[0, 1], [1, 1]], dtype=torch.int8)
    module.observe(observations)
    assert module(observations).tolist() == [[0, 1], [1, 1]]


def test_entries_of_a_dict_are_joined_however_the_observation_orders_them() -> None:
    space = OBSERVATION_SPACES["dict"]
    module = encoder(space, normalize=False)
    assert module.features == 3 + 2 + 2
    observations = sample(space)
    turned = {key: observations[key] for key in reversed(observations)}
    turned["inner"] = {key: observations["inner"][key] for key in reversed(observations["inner"])}
    torch.testing.assert_close(module(turned), module(observations))
    columns = sorted(map(tuple, module(observations).T.tolist()))
    one_hot = torch.nn.functional.one_hot(observations["what.is/this"], 3).float()
    whole = torch.cat([observations["inner"]["a"].float(), observations["inner"]["b"], one_hot], -1)
    assert columns == sorted(map(tuple, whole.T.tolist()))


class TestImages:
    def test_channels_may_come_first_or_last(self) -> None:
        first, last = (
            encoder(OBSERVATION_SPACES[f"image, channels {where}"], normalize=True) for where in ("first", "last")
        )
        assert isinstance(first, ImageEncoder)
        assert isinstance(last, ImageEncoder)
        last.load_state_dict(first.state_dict())
        images = sample(OBSERVATION_SPACES["image, channels first"])
        torch.testing.assert_close(last(images.permute(0, 2, 3, 1)), first(images))

    def test_an_image_without_channels_is_one_with_a_single_one(self) -> None:
        one, none = (encoder(spaces.Box(0, 255, shape, np.uint8), normalize=False) for shape in ((1, 40, 36), (40, 36)))
        none.load_state_dict(one.state_dict())
        images = sample(spaces.Box(0, 255, (1, 40, 36), np.uint8))
        torch.testing.assert_close(none(images.squeeze(1)), one(images))

    def test_a_stack_of_images_is_one_with_the_channels_of_all(self) -> None:
        shapes = (8, 40, 36), (4, 2, 40, 36), (4, 40, 36, 2)
        flat, first, last = (encoder(spaces.Box(0, 255, shape, np.uint8), normalize=False) for shape in shapes)
        first.load_state_dict(flat.state_dict())
        last.load_state_dict(flat.state_dict())
        stacks = sample(spaces.Box(0, 255, (4, 2, 40, 36), np.uint8))
        torch.testing.assert_close(first(stacks), flat(stacks.flatten(1, 2)))
        torch.testing.assert_close(last(stacks.movedim(2, -1)), flat(stacks.flatten(1, 2)))

    def test_bytes_are_scaled(self) -> None:
        torch.manual_seed(0)
        module = encoder(OBSERVATION_SPACES["image, channels first"], normalize=False)
        white = torch.full((1, 3, 36, 40), 255, dtype=torch.uint8)
        assert 0 < module(white).abs().max() < 20

    @pytest.mark.parametrize(
        "shape",
        [(84, 84, 3), (4, 84, 84), (210, 160, 3), (36, 36, 1), (1, 36, 100), (84, 84), (4, 84, 84, 3), (4, 3, 84, 84)],
    )
    def test_usual_sizes_go_through_the_cnn(self, shape: tuple[int, ...]) -> None:
        space = spaces.Box(0, 255, shape, np.uint8)
        module = encoder(space, normalize=False)
        assert isinstance(module, ImageEncoder)
        assert module(sample(space)).shape == (4, module.features)

    @pytest.mark.parametrize(
        "space",
        [
            spaces.Box(0, 255, (35, 35, 3), np.uint8),
            spaces.Box(0, 255, (40, 35), np.uint8),
            spaces.Box(0, 255, (128,), np.uint8),
            spaces.Box(0, 255, (40, 40, 4, 3), np.uint8),
            spaces.Box(0, 1, (40, 40, 3), np.float32),
        ],
        ids=str,
    )
    def test_what_is_too_small_or_no_bytes_is_taken_as_numbers(self, space: spaces.Box) -> None:
        assert isinstance(encoder(space, normalize=False), VectorEncoder)


class TestNormalizer:
    data = torch.from_numpy(np.random.default_rng(0).normal([3.0, -1e4], [0.1, 50.0], (500, 2)))

    def test_it_changes_nothing_before_the_first_update(self) -> None:
        torch.testing.assert_close(Normalizer((2,))(torch.tensor([[1.0, -2.0]])), torch.tensor([[1.0, -2.0]]))

    @pytest.mark.parametrize("sizes", [[500], [1] * 500, [100, 1, 399]])
    def test_statistics_are_those_of_all_batches_together(self, sizes: list[int]) -> None:
        normalizer = Normalizer((2,))
        for batch in torch.split(self.data, sizes):
            normalizer.update(batch)
        torch.testing.assert_close(normalizer.mean, self.data.mean(0))
        torch.testing.assert_close(normalizer.m2 / normalizer.count, self.data.var(0, correction=0))
        features = normalizer(self.data)
        torch.testing.assert_close(features.mean(0), torch.zeros(2), atol=1e-5, rtol=0)
        torch.testing.assert_close(features.std(0, correction=0), torch.ones(2), atol=1e-5, rtol=0)

    def test_forward_counts_nothing(self) -> None:
        normalizer = Normalizer((2,))
        normalizer.update(self.data)
        before = {name: tensor.clone() for name, tensor in normalizer.state_dict().items()}
        normalizer.train()
        normalizer(self.data + 100)
        torch.testing.assert_close(dict(normalizer.state_dict()), before, rtol=0, atol=0)

    def test_what_never_moved_stays_small(self) -> None:
        normalizer = Normalizer((1,))
        normalizer.update(torch.full((10, 1), 7.0))
        assert normalizer(torch.tensor([[7.0]])).item() == 0
        assert normalizer(torch.tensor([[8.0]])).item() == 10

    def test_statistics_are_part_of_the_weights(self) -> None:
        assert set(encoder(OBSERVATION_SPACES["vector"], normalize=True).state_dict()) == {
            "normalizer.count",
            "normalizer.mean",
            "normalizer.m2",
        }


@pytest.mark.parametrize(
    "space",
    [
        spaces.Tuple([spaces.Discrete(2), spaces.Text(5)]),
        spaces.Text(5),
        spaces.Graph(spaces.Discrete(2), None),
        spaces.Sequence(spaces.Discrete(2)),
        spaces.OneOf([spaces.Discrete(2)]),
        spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Text(5)}),
        spaces.Space((2,), np.complex64),
    ],
    ids=lambda space: type(space).__name__,
)
def test_other_observations_are_refused_with_a_sentence(space: spaces.Space[Any]) -> None:
    with pytest.raises(TypeError, match=r"Observations must be Box, .* got .*; wrap the environment"):
        encoder(space, normalize=False)
