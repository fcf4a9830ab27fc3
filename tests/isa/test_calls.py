"""Functions: parameters and results, recursion, indirect calls, jump tables, lanes that part in between."""

from __future__ import annotations

import numpy as np
import pytest

import h100sim
from tests.kernels import STORE_THREAD, entry, launch, zeros

LANE = ".reg .b32 %lane; mov.u32 %lane, %laneid;"
RESULT = ".reg .b32 %r_value;"


def run(body: str, outside: str = "", lanes: int = 32) -> list[int]:
    """Run a kernel that stores %r_value of every thread; no hazards."""
    out = zeros(lanes)
    found = launch(entry("u64 out", LANE + RESULT + body + STORE_THREAD, outside=outside), (out,), block=lanes)
    assert not found.hazards
    return out.view(np.int32).tolist()


def test_parameters_and_results_in_memory_and_in_registers():
    outside = """
    .func (.param .b32 r) by_memory(.param .b32 a, .param .b64 b) {
        .reg .b32 %x; .reg .b64 %y; ld.param.u32 %x, [a]; ld.param.u64 %y, [b]; cvt.u32.u64 %r9, %y;
        sub.u32 %x, %x, %r9; st.param.b32 [r], %x; ret; }
    .func (.reg .b32 r, .reg .b64 wide) by_register(.reg .b32 a, .reg .b64 b) {
        .reg .b32 %x; cvt.u32.u64 %x, b; sub.u32 r, a, %x; shl.b64 wide, b, 1; ret; }
    """.replace("ld.param.u32 %x, [a];", ".reg .b32 %r9; ld.param.u32 %x, [a];", 1)
    body = """
    .param .b32 p0; .param .b64 p1; .param .b32 q; .reg .b32 %v; .reg .b64 %w;
    st.param.b32 [p0], 1000; cvt.u64.u32 %w, %lane; st.param.b64 [p1+0], %w;
    call.uni (q), by_memory, (p0, p1); ld.param.b32 %r_value, [q+0];
    call (%v), by_memory, (500, %w); add.u32 %r_value, %r_value, %v;
    call (%v, %w), by_register, (%v, %w); add.u32 %r_value, %r_value, %v; cvt.u32.u64 %v, %w; add.u32 %r_value, %r_value, %v;
    call (q, _), by_register, (p0, p1); ld.param.u32 %v, [q]; add.u32 %r_value, %r_value, %v;
    """
    assert run(body, outside) == [(1000 - k) + (500 - k) + (500 - 2 * k) + 2 * k + (1000 - k) for k in range(32)]


def test_structures_by_value_through_addresses_of_parameters():
    outside = """
    .func (.param .align 16 .b8 r[16]) swap(.param .align 16 .b8 s[16]) {
        .reg .b64 %a, %b; .reg .b32 %x, %y, %z, %w;
        mov.b64 %a, s; add.u64 %a, %a, 16; ld.param.v2.b32 {%x, %y}, [%a+-16]; ld.local.b32 %z, [%a+-8];
        cvta.param.u64 %b, s; ld.b32 %w, [%b+12];
        st.param.v4.b32 [r], {%w, %z, %y, %x}; ret; }
    """
    body = """
    .param .align 16 .b8 in[16]; .param .align 16 .b8 out4[16]; .reg .b32 %x, %y, %z, %w;
    st.param.v2.b32 [in], {%lane, 2}; st.param.v2.b32 [in+8], {3, 4};
    call (out4), swap, (in);
    ld.param.v4.b32 {%x, %y, %z, %w}, [out4];
    mad.lo.u32 %r_value, %x, 1000, %w; mad.lo.u32 %r_value, %y, 100, %r_value; mad.lo.u32 %r_value, %z, 10, %r_value;
    """
    assert run(body, outside) == [4000 + 300 + 20 + k for k in range(32)]


def test_a_caller_keeps_its_variables_when_it_calls_twice():
    outside = """
    .func (.param .b32 r) f(.param .b32 a) {
        .local .align 4 .b8 own[8]; .reg .b32 %x, %y; .reg .b64 %p; mov.u64 %p, own;
        ld.param.b32 %x, [a]; st.local.b32 [own+4], %x; mul.lo.u32 %x, %x, 3; st.local.b32 [%p], %x;
        ld.local.b32 %y, [%p+4]; ld.local.b32 %x, [own]; add.u32 %x, %x, %y; st.param.b32 [r], %x; ret; }
    .func (.param .b32 r) g(.param .b32 a) {
        .local .align 4 .b32 own; .reg .b32 %x, %y; .param .b32 p, q;
        ld.param.b32 %x, [a]; st.local.b32 [own], %x; st.param.b32 [p], 5; call (q), f, (p); ld.param.b32 %y, [q];
        ld.local.b32 %x, [own]; add.u32 %x, %x, %y; st.param.b32 [r], %x; ret; }
    """
    body = """
    .local .align 4 .b32 mine; st.local.b32 [mine], %lane;
    .param .b32 p, q; .reg .b32 %v;
    st.param.b32 [p], %lane; call (q), g, (p); ld.param.b32 %r_value, [q];
    call (q), f, (p); ld.param.b32 %v, [q]; add.u32 %r_value, %r_value, %v; ld.local.b32 %v, [mine]; add.u32 %r_value, %r_value, %v;
    """
    assert run(body, outside) == [(k + 20) + 4 * k + k for k in range(32)]


FACTORIAL = """
.func (.reg .b64 r) factorial(.reg .b32 n) {
    .reg .pred %stop; .reg .b32 %m; .reg .b64 %n;
    setp.lt.u32 %stop, n, 2; mov.u64 r, 1; @%stop ret;
    sub.u32 %m, n, 1; call (r), factorial, (%m); cvt.u64.u32 %n, n; mul.lo.u64 r, r, %n; ret; }
"""


def test_recursion_of_lanes_at_different_depths():
    body = ".reg .b64 %f; rem.u32 %r_value, %lane, 12; call (%f), factorial, (%r_value); cvt.u32.u64 %r_value, %f;"
    expected = [int(np.prod(np.arange(1, k % 12 + 1), dtype=np.int64)) for k in range(32)]
    assert run(body, FACTORIAL) == expected


def test_recursion_that_branches_around_a_place_where_the_caller_meets():
    """Both calls are in one divergent branch whose sides meet in the function itself, one level further up."""
    outside = """
    .func (.reg .b32 r) fib(.reg .b32 n) {
        .reg .pred %p; .reg .b32 %m, %a, %b;
        setp.lt.u32 %p, n, 2; @%p bra LEAF;
        sub.u32 %m, n, 1; call (%a), fib, (%m); sub.u32 %m, n, 2; call (%b), fib, (%m); add.u32 r, %a, %b; bra DONE;
    LEAF: mov.u32 r, n;
    DONE: add.u32 r, r, 0; ret; }
    """
    fib = [0, 1]
    while len(fib) < 9:
        fib.append(fib[-1] + fib[-2])
    assert run("rem.u32 %r_value, %lane, 9; call (%r_value), fib, (%r_value);", outside) == [fib[k % 9] for k in range(32)]


def test_mutual_recursion_keeps_predicates_and_wide_registers():
    outside = """
    .func (.param .b32 r) odd(.param .b64 n);
    .func (.param .b32 r) even(.param .b64 n) {
        .reg .pred %zero, %large; .reg .b64 %n, %m; .reg .b32 %x; .param .b64 p; .param .b32 q;
        ld.param.u64 %n, [n]; setp.eq.u64 %zero, %n, 0; setp.gt.u64 %large, %n, 3; mov.u32 %x, 1; @%zero bra OUT;
        sub.u64 %m, %n, 1; st.param.b64 [p], %m; call (q), odd, (p); ld.param.b32 %x, [q];
        @%large add.u32 %x, %x, 10; cvt.u32.u64 %y, %n; mad.lo.u32 %x, %y, 100, %x;
    OUT: st.param.b32 [r], %x; ret; }
    .func (.param .b32 r) odd(.param .b64 n) {
        .reg .pred %zero; .reg .b64 %n; .reg .b32 %x; .param .b64 p; .param .b32 q;
        ld.param.u64 %n, [n]; setp.eq.u64 %zero, %n, 0; mov.u32 %x, 0; @%zero bra OUT;
        sub.u64 %n, %n, 1; st.param.b64 [p], %n; call (q), even, (p); ld.param.b32 %x, [q];
    OUT: st.param.b32 [r], %x; ret; }
    """.replace(".reg .b32 %x; .param .b64 p", ".reg .b32 %x, %y; .param .b64 p")

    def even(n: int) -> int:
        return 1 if n == 0 else odd(n - 1) + (10 if n > 3 else 0) + 100 * n

    def odd(n: int) -> int:
        return 0 if n == 0 else even(n - 1)

    body = """.param .b64 p; .param .b32 q; .reg .b64 %n; rem.u32 %r_value, %lane, 11; cvt.u64.u32 %n, %r_value;
    st.param.b64 [p], %n; call (q), even, (p); ld.param.b32 %r_value, [q];"""
    assert run(body, outside) == [even(k % 11) for k in range(32)]


def test_endless_recursion_ends_with_an_error():
    outside = ".func f(.reg .b32 n) { .reg .b32 %m; add.u32 %m, n, 1; call f, (%m); ret; }"
    with pytest.raises(h100sim.OutOfRange, match=r"stack of a lane must be at most 65,\d+ bytes"):
        run("call f, (%lane); mov.u32 %r_value, 0;", outside)


POINTERS = """
.func (.param .b32 r) once(.param .b32 a) { .reg .b32 %x; ld.param.b32 %x, [a]; add.u32 %x, %x, 1000; st.param.b32 [r], %x; ret; }
.func (.param .b32 r) twice(.param .b32 a) { .reg .b32 %x; ld.param.b32 %x, [a]; shl.b32 %x, %x, 1; st.param.b32 [r], %x; ret; }
.func (.param .b32 r) never(.param .b32 a) { .reg .b32 %x; ld.param.b32 %x, [a]; neg.s32 %x, %x; st.param.b32 [r], %x; ret; }
.func (.param .b64 r) other(.param .b32 a) { st.param.b64 [r], 5; ret; }
.global .u64 table[4] = {once, twice, never, other};
"""
INDIRECT = """
    .reg .b64 %a, %f; .param .b32 p, q; proto: .callprototype (.param .b32 _) _ (.param .b32 _);
    mul.wide.u32 %a, %which, 8; mov.u64 %f, table; add.u64 %a, %a, %f; ld.global.u64 %f, [%a];
    st.param.b32 [p], %lane; call (q), %f, (p), proto; ld.param.b32 %r_value, [q];
"""


def test_indirect_calls_of_lanes_that_call_different_functions():
    body = ".reg .b32 %which; rem.u32 %which, %lane, 3;" + INDIRECT
    assert run(body, POINTERS) == [(1000 + k, 2 * k, -k)[k % 3] for k in range(32)]


def test_an_indirect_call_under_a_guard():
    body = """.reg .pred %even; .reg .b32 %bit; .reg .b64 %f; .param .b32 p, q;
    and.b32 %bit, %lane, 1; setp.eq.u32 %even, %bit, 0; st.param.b32 [p], %lane; mov.u32 %r_value, 7;
    targets: .calltargets twice, never; mov.u64 %f, twice; @!%even mov.u64 %f, never;
    setp.lt.u32 %even, %lane, 20; @%even call (q), %f, (p), targets; @%even ld.param.b32 %r_value, [q];
    """
    assert run(body, POINTERS) == [((2 * k, -k)[k & 1] if k < 20 else 7) for k in range(32)]


@pytest.mark.parametrize(("which", "what"), [(3, "other"), (4, "0x")])
def test_an_indirect_call_of_what_is_no_such_function(which, what):
    outside = POINTERS.replace("table[4]", "table[5]").replace("other}", "other, 96}")
    with pytest.raises(h100sim.IllegalInstruction, match=f"function with the signature of the call, not {what}"):
        run(f".reg .b32 %which; mov.u32 %which, {which};" + INDIRECT, outside)


def test_a_direct_call_under_a_guard_meets_behind_the_call():
    outside = """.func (.reg .b32 r) f(.reg .b32 a) {
        .reg .b32 %m; activemask.b32 %m; popc.b32 %m, %m; mad.lo.u32 r, %m, 100, a; ret; }"""
    body = """.reg .pred %p; .reg .b32 %m; setp.gt.u32 %p, %lane, 26; mov.u32 %r_value, 0;
    @%p call (%r_value), f, (%lane);
    activemask.b32 %m; popc.b32 %m, %m; mad.lo.u32 %r_value, %m, 10000, %r_value;"""
    assert run(body, outside) == [320000 + (500 + k if k > 26 else 0) for k in range(32)]


def test_lanes_that_return_early_meet_those_that_return_late():
    outside = """.func (.reg .b32 r) f(.reg .b32 a) { .reg .pred %p, %q; .reg .b32 %i;
        mov.u32 r, a; setp.lt.u32 %p, a, 5; @%p ret; setp.gt.u32 %q, a, 20; @%q bra FAR; mov.u32 r, 1; ret;
    FAR: add.u32 r, r, 1; add.u32 %i, r, -30; setp.gt.s32 %q, %i, 0; @%q ret; bra FAR; }"""
    body = """.reg .b32 %m; call (%r_value), f, (%lane);
    activemask.b32 %m; popc.b32 %m, %m; mad.lo.u32 %r_value, %m, 100, %r_value;"""
    assert run(body, outside) == [3200 + (k if k < 5 else 1 if k <= 20 else max(31, k + 1)) for k in range(32)]


def test_lanes_that_exit_in_a_function_do_not_hold_up_the_others():
    outside = """.func f(.reg .b32 a) { .reg .pred %p; setp.lt.u32 %p, a, 5; @%p bra OUT; ret; OUT: exit; }"""
    body = "call f, (%lane); activemask.b32 %r_value;"
    assert run(body, outside) == [0] * 5 + [-32] * 27


def test_a_jump_table_of_lanes_that_go_different_ways():
    body = """.reg .b32 %i, %m; rem.u32 %i, %lane, 4; mov.u32 %r_value, 0;
    ways: .branchtargets A, B, C, A; brx.idx %i, ways;
    A: add.u32 %r_value, %r_value, 1; bra MEET;
    B: add.u32 %r_value, %r_value, 10;
    C: add.u32 %r_value, %r_value, 100;
    MEET: activemask.b32 %m; popc.b32 %m, %m; mad.lo.u32 %r_value, %m, 1000, %r_value;"""
    assert run(body) == [32000 + (1, 110, 100, 1)[k % 4] for k in range(32)]


def test_a_jump_table_under_a_guard_and_as_a_loop():
    body = """.reg .pred %p; .reg .b32 %i; mov.u32 %r_value, 0; mov.u32 %i, 0;
    ways: .branchtargets AGAIN, DONE;
    AGAIN: add.u32 %r_value, %r_value, 1; setp.gt.u32 %p, %r_value, %lane; selp.u32 %i, 1, 0, %p; brx.idx %i, ways;
    DONE: setp.lt.u32 %p, %lane, 3; mov.u32 %i, 0;
    more: .branchtargets LOW; @%p brx.idx.uni %i, more; add.u32 %r_value, %r_value, 100;
    LOW:"""
    assert run(body) == [k + 1 + (0 if k < 3 else 100) for k in range(32)]


def test_an_index_outside_its_jump_table():
    with pytest.raises(h100sim.IllegalInstruction, match=r"brx\.idx index must be from 0 to 1, not 31"):
        run("ways: .branchtargets A, B; sub.u32 %r_value, 31, %lane; brx.idx %r_value, ways; A: B: mov.u32 %r_value, 0;")


def test_loops_that_call_in_divergent_code():
    outside = """.func (.reg .b32 r) step(.reg .b32 a, .reg .b32 n) {
        .reg .pred %p; and.b32 r, n, 1; setp.eq.u32 %p, r, 0; add.u32 r, a, 1; @%p add.u32 r, a, 2; ret; }"""
    body = """.reg .pred %p; .reg .b32 %i; mov.u32 %i, 0; mov.u32 %r_value, 0;
    LOOP: setp.ge.u32 %p, %i, %lane; @%p bra END;
    call (%r_value), step, (%r_value, %i); add.u32 %i, %i, 1; bra LOOP; END:"""
    assert run(body, outside) == [sum(2 - (i & 1) for i in range(k)) for k in range(32)]


def test_spinning_on_a_lock_inside_a_function():
    """Each lane takes a lock that another lane of its warp holds: whoever spins must let the holder go on."""
    outside = """
    .global .u32 lock; .global .u32 sum;
    .func enter() {
        .reg .pred %p; .reg .b32 %old;
    AGAIN: atom.acquire.gpu.global.cas.b32 %old, [lock], 0, 1; setp.ne.u32 %p, %old, 0; @%p bra AGAIN; ret; }
    .func leave_() { .reg .b32 %old; atom.release.gpu.global.exch.b32 %old, [lock], 0; ret; }
    """
    body = """.reg .b32 %v; call enter; ld.volatile.global.u32 %v, [sum]; add.u32 %v, %v, 1;
    st.volatile.global.u32 [sum], %v; mov.u32 %r_value, %v; call leave_;"""
    assert sorted(run(body, outside)) == list(range(1, 33))


def test_an_alias_is_another_name_of_a_function():
    outside = """.func (.reg .b32 r) real(.reg .b32 a) { mul.lo.u32 r, a, 3; ret; }
    .func (.reg .b32 r) again(.reg .b32 a); .alias again, real;
    """
    assert run("call (%r_value), again, (%lane);", outside) == [3 * k for k in range(32)]


@pytest.mark.parametrize(
    ("outside", "body", "message"),
    [
        (".func f(.param .b32 a);", "call f, (1);", "function f must be defined in the module, not only declared"),
        (".func f(.param .b32 a) { ret; }", "call f;", "number of arguments of call must be 1, not 0"),
        (".func f(.param .b32 a) { ret; }", ".param .b64 b; call f, (b);", "argument b of call must have the 4 bytes .* not 8"),
        (".func f(.param .b32 a) { ret; }", ".reg .b64 %b; call f, (%b);", "argument %b of call must have the 4 bytes"),
        (".visible .entry f() { ret; }", "call f;", "target of call must be a device function, not f"),
        (".func f(.reg .pred a) { ret; }", ".reg .pred %b; call f, (%b);", "must have at least 32 bits, not the type .pred"),
        ("", ".reg .b64 %f; call %f, (1);", "indirect call must name a .callprototype or .calltargets"),
    ],
)
def test_calls_that_ptxas_refuses(outside, body, message):
    with pytest.raises(h100sim.PtxError, match=message):
        run(body, outside)


def test_a_debugger_steps_back_through_calls():
    out = zeros(32)
    body = ".reg .b64 %f; mov.u32 %r_value, %laneid; call (%f), factorial, (5); cvt.u32.u64 %r_value, %f;"
    kernel = h100sim.RawModule(code=entry("u64 out", RESULT + body + STORE_THREAD, outside=FACTORIAL)).get_function("kernel")
    debugger = kernel.debug((1,), (32,), (out,))
    debugger.step(20)
    before = {name: row.copy() for name, row in debugger.registers(0).items()}
    assert before["%frame"].any()
    debugger.step(15)
    debugger.step_back(15)
    after = debugger.registers(0)
    assert all(np.array_equal(after[name], row) for name, row in before.items())
    while debugger.step(1000):
        pass
    debugger.session.write_back()
    assert set(out.tolist()) == {120}


def test_stack_pointer_is_saved_and_restored():
    body = """.reg .b64 before, after, back, address; .reg .b32 %r_value, x; .reg .pred ok;
    mov.u32 x, %tid.x; add.u32 x, x, 1; cvt.u64.u32 address, x;
    stacksave.u64 before; alloca.u64 address, address, 32; st.local.u8 [address], 7;
    and.b64 address, address, 31; stackrestore.u64 before; stacksave.u64 back; alloca.u64 after, 8; sub.u64 after, before, after;
    setp.eq.u64 ok, back, before; selp.u32 %r_value, 100, 0, ok; cvt.u32.u64 x, after; add.u32 %r_value, %r_value, x;
    cvt.u32.u64 x, address; add.u32 %r_value, %r_value, x;"""
    out = zeros(32)
    launch(entry("u64 out", body + STORE_THREAD + "ret;"), (out,))
    assert (out == 108).all()
    with pytest.raises(h100sim.OutOfRange, match="stack pointer must be between the function's frame and the stack's end"):
        launch(entry("u64 out", ".reg .b64 a; mov.u64 a, 0x100000; stackrestore.u64 a; ret;"), (out,))
