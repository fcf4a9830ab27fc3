"""Programs in shapes that nobody chose: Hypothesis draws them, the reference and the checks judge."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tk_programs.meets import assert_meets_reference
from tk_programs import attention, gemm_8_tma_store, gemm_stream_k, layernorm, rotary, softmax

FEW = settings(max_examples=8, deadline=None, derandomize=True)


@st.composite
def attentions(draw):
    """Draw settings of attention that it must take."""
    kv_heads, share = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    consumers, lse = draw(st.integers(1, 3)), draw(st.booleans())
    n = draw(st.integers(1, 260))
    return {
        "batch": draw(st.integers(1, 2)),
        "heads": kv_heads * share,
        "kv_heads": kv_heads,
        "n": -(-n // 4) * 4 if lse else n,
        "d": draw(st.sampled_from((64, 128))),
        "kv": 64 * draw(st.integers(1, 2)),
        "stages": draw(st.integers(1, 2)),
        "consumers": consumers,
        "causal": draw(st.booleans()),
        "overlap": draw(st.booleans()),
        "order": consumers == 2 and draw(st.booleans()),
        "lse": lse,
    }


@FEW
@given(attentions())
def test_attention(config):
    assert_meets_reference(attention, config)


@FEW
@given(st.data())
def test_stream_k_cuts_anywhere(data):
    rows, cols, steps = (data.draw(st.integers(1, n)) for n in (2, 2, 5))
    ctas = data.draw(st.integers(1, rows * cols * steps))
    config = {"m": 128 * rows, "n": 128 * cols, "k": 64 * steps, "ctas": ctas, "stages": data.draw(st.integers(1, 4))}
    assert_meets_reference(gemm_stream_k, config)


@FEW
@given(st.integers(1, 3), st.integers(1, 2), st.integers(1, 6), st.integers(2, 4), st.integers(1, 4))
def test_persistent_clusters(pairs, cols, steps, stages, clusters):
    config = {"m": 256 * pairs, "n": 256 * cols, "k": 64 * steps, "stages": stages, "ctas": 2 * clusters}
    assert_meets_reference(gemm_8_tma_store, config)


@FEW
@given(st.integers(1, 150), st.integers(1, 5), st.sampled_from((64, 128, 256)))
def test_softmax(rows, pieces, chunk):
    assert_meets_reference(softmax, {"rows": rows, "cols": pieces * chunk, "chunk": chunk})


@FEW
@given(st.integers(1, 100), st.integers(1, 6), st.integers(1, 4))
def test_layernorm(rows, pieces, warps):
    assert_meets_reference(layernorm, {"rows": rows, "d": 64 * pieces, "warps": warps})


@FEW
@given(st.integers(1, 2), st.integers(1, 6), st.integers(1, 150), st.sampled_from((64, 128)))
def test_rotary(batch, heads, n, d):
    assert_meets_reference(rotary, {"batch": batch, "heads": heads, "n": n, "d": d})
