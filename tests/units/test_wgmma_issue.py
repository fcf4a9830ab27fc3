"""When wgmma are issued and done, and what they cost the lanes beside them: the probes, here and on silicon."""

from __future__ import annotations

import pytest

from validate import probes
from validate.probes import softmax_rate, wgmma_issue
from validate.probes.timed_kernel import cycles

ISSUE = probes.silicon_results("wgmma_issue")
BESIDE = probes.silicon_results("softmax_rate")
LAUNCH = probes._launcher("sim")[0]
COUNTS = (1, 4, 8, 16)


def here(n: int, a: str, transposed: int, groups: int, until_done: bool) -> list[int]:
    texts = [wgmma_issue.kernel(n, count, a, transposed, groups, until_done) for count in COUNTS]
    return [max(cycles(LAUNCH, text, 4 * groups, repeats=1)) for text in texts]


def there(name: str) -> list[int]:
    return [ISSUE[name][wgmma_issue.COUNTS.index(count)] for count in COUNTS]


@pytest.mark.parametrize("kind", [(64, "ss", 0), (256, "ss", 0), (64, "rs", 1), (128, "rs", 0)], ids=str)
def test_wgmma_are_done_when_they_are_on_silicon(kind: tuple[int, str, int]) -> None:
    n, a, transposed = kind
    name = f"{a} n{n}{' transposed' if transposed else ''}, done, 1 warpgroup"
    assert here(*kind, 1, True) == pytest.approx(there(name), abs=5)


@pytest.mark.parametrize("kind", [(64, "ss", 0), (128, "ss", 0), (128, "rs", 0)], ids=str)
def test_as_many_wgmma_are_issued_before_a_warp_waits(kind: tuple[int, str, int]) -> None:
    issued, silicon = here(*kind, 1, False), there(f"{kind[1]} n{kind[0]}, issued, 1 warpgroup")
    ahead = issued[0] - silicon[0]
    assert 0 <= ahead <= 12
    assert [x - ahead for x in issued] == pytest.approx(silicon, abs=14)


def test_two_warpgroups_share_the_queue() -> None:
    assert here(64, "ss", 0, 2, False)[2] == pytest.approx(there("ss n64, issued, 2 warpgroups")[2], rel=0.08)


def beside(name: str, stream: str, groups: int) -> tuple[float, float]:
    """Return the cycles of a trip beside a stream of wgmma (here, there)."""
    index = groups - 1
    if name == "softmax":
        text, unrolled = softmax_rate.softmax(), 1
    else:
        text, unrolled = softmax_rate._repeated(softmax_rate.FORMS[name][0]), softmax_rate.UNROLLED
    trip = softmax_rate._trip(LAUNCH, text, groups, softmax_rate.STREAMS[stream])
    return trip / unrolled, BESIDE[f"{name} beside {stream}"][index]


@pytest.mark.parametrize("name", ["max.f32", "cvt.rn.bf16x2.f32", "ex2.approx.ftz.f32", "shfl.sync.bfly"])
def test_instructions_take_longer_beside_wgmma(name: str) -> None:
    cycles_here, cycles_there = beside(name, "ss n128", 2)
    assert cycles_here == pytest.approx(cycles_there, rel=0.12)
    assert cycles_here > 1.25 * beside(name, "nothing", 2)[0]


@pytest.mark.parametrize(
    ("stream", "groups", "within"), [("nothing", 1, 0.1), ("nothing", 3, 0.12), ("ss n128", 1, 0.2), ("rs n64", 2, 0.1)]
)
def test_the_softmax_of_attention(stream: str, groups: int, within: float) -> None:
    cycles_here, cycles_there = beside("softmax", stream, groups)
    assert cycles_here == pytest.approx(cycles_there, rel=within)
