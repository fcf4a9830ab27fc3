"""``pdl.*``: programmatic dependent launch, where a kernel may begin before the one ahead of it in the stream has ended.

The simulator runs one launch at a time, so both are without effect there. Spec: PTX ISA 9.1, "griddepcontrol".
"""

from __future__ import annotations

from .builder import current


def arrive() -> None:
    """Let the kernel that depends on this one begin. PTX: ``griddepcontrol.launch_dependents``."""
    current().emit("griddepcontrol.launch_dependents")


def wait() -> None:
    """Wait until the kernels that this one depends on have ended and their memory is visible. PTX: ``griddepcontrol.wait``."""
    current().emit("griddepcontrol.wait")
