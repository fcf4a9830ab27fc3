"""Where data lies: swizzles, wgmma matrix descriptors, register fragments, layout algebra, and pictures of them."""

from h100sim.layouts.algebra import Layout
from h100sim.layouts.banks import wavefronts
from h100sim.layouts.descriptor import MatrixDescriptor, operand_addresses
from h100sim.layouts.fragments import fragment
from h100sim.layouts.swizzle import swizzle

__all__ = ["Layout", "MatrixDescriptor", "fragment", "operand_addresses", "swizzle", "wavefronts"]
