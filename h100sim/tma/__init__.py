"""The tensor memory accelerator: tensor maps, and what a tensor copy does to memory."""

from h100sim import hypothesis_entry_point
from h100sim.tma.copy import tma_load, tma_store
from h100sim.tma.faults import fault_class, fault_text
from h100sim.tma.plan import PLAN_WORDS, box_bytes, plan_rank
from h100sim.tma.tensor_map import TensorMap

__all__ = ["PLAN_WORDS", "TensorMap", "box_bytes", "fault_class", "fault_text", "plan_rank", "tma_load", "tma_store"]

hypothesis_entry_point.register()
