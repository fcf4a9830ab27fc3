"""Random calls of the driver's encoders: what is asked, what counts as a difference, and what the driver said."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from validate import tensor_maps
from validate.probes import SILICON


def test_about_half_of_the_calls_are_legal_and_every_rule_is_tried() -> None:
    found = tensor_maps.compare(4_000, 1, tensor_maps.own_judge)
    assert found.calls == 4_000 and 1_200 < found.accepted < 2_800 and not found.differing
    nouns = " ".join(found.rules)
    for noun in ("address", "dims", "strides", "box", "element_strides", "rank", "oob_fill", "lower_corner"):
        assert f"tensor map {noun}" in nouns
    assert str(found).endswith("refused, 0 differences")


def test_every_refusal_names_the_rule_and_the_value() -> None:
    rng = np.random.default_rng(4)
    messages = set()
    for _ in range(4_000):
        try:
            tensor_maps.make_map(tensor_maps.random_call(rng))
        except tensor_maps.TensorMapError as error:
            messages.add(error.message)
    assert len(messages) > 200
    assert not [message for message in messages if not re.fullmatch(r"tensor map \S.* must be \S.*, not \S.*", message)]


def test_a_judge_of_another_opinion_is_noticed() -> None:
    found = tensor_maps.compare(200, 2, lambda call: None)
    assert len(found.differing) == 200 - sum(found.rules.values()) > 0
    assert str(found).endswith(f"{len(found.differing)} judged or encoded differently")


def test_the_driver_is_given_every_argument_of_the_call() -> None:
    """A stand-in for cuda.bindings.driver that encodes what it is given with our encoder, from the driver's codes."""

    def named(names: Any) -> Any:
        return lambda code: tuple(names)[code]

    def encode(element: str, rank: int, address: int, dims: list, strides: list, *rest: Any) -> tuple[int, Any]:
        *boxes, element_strides, interleave, swizzle, l2_promotion, oob_fill = rest
        assert len(dims) == min(rank, 5)
        common = (element, address, dims + [1] * (rank - 5), strides[: rank - 1])
        options = dict(interleave=interleave, swizzle=swizzle, l2_promotion=l2_promotion, oob_fill=oob_fill)
        make = tensor_maps.TensorMap.tiled if len(boxes) == 1 else tensor_maps.TensorMap.im2col
        try:
            raw = bytes(make(*common, *boxes, element_strides, **options))
        except tensor_maps.TensorMapError:
            return 1, None
        return 0, SimpleNamespace(opaque=np.frombuffer(raw, np.uint64))

    driver = SimpleNamespace(
        cuuint64_t=int, cuuint32_t=int, cuTensorMapEncodeTiled=encode, cuTensorMapEncodeIm2col=encode,
        CUtensorMapDataType=named(tensor_maps.DTYPES), CUtensorMapInterleave=named(tensor_maps.INTERLEAVES),
        CUtensorMapSwizzle=named(tensor_maps.SWIZZLES), CUtensorMapL2promotion=named(tensor_maps.L2_PROMOTIONS),
        CUtensorMapFloatOOBfill=named(tensor_maps.OOB_FILLS),
    )  # fmt: skip
    assert not tensor_maps.compare(1_000, 3, tensor_maps.driver_judge(driver)).differing


@pytest.mark.skipif(not (SILICON / "tensor_maps.json").exists(), reason="no capture")
def test_the_driver_said_the_same() -> None:
    facts = json.loads((SILICON / "tensor_maps.json").read_text())
    found = tensor_maps.compare(facts["calls"], facts["seed"], tensor_maps.own_judge)
    assert (found.accepted, found.sha256) == (facts["accepted"], facts["sha256"])
