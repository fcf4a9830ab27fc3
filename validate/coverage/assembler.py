"""What ptxas says about every form: ``python -m validate coverage --assemble`` asks it and keeps its refusals.

Kept in tests/data/ptxas_forms.json: the version of ptxas, how many forms it was asked about, and the reason for each that it
refuses for sm_90a.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from h100sim.errors import UsageError
from h100sim.isa import lane

from .forms import kernel_of, lane_form, patterns

VERDICTS = Path(__file__).parents[2] / "tests" / "data" / "ptxas_forms.json"


def every_form() -> list[str]:
    """Return every form that the assembler is asked about."""
    found = [form for pattern in patterns() for form in pattern.forms]
    found += [lane_form(opcode) for opcodes in lane.forms().values() for opcode in opcodes]
    return list(dict.fromkeys(found))


def verdict(form: str) -> str:
    """Return why ptxas refuses a form for sm_90a, "" if it does not."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "form.ptx"
        path.write_text(kernel_of(form))
        command = ["ptxas", "-arch=sm_90a", "-O0", str(path), "-o", str(path.with_suffix(".cubin"))]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return ""
    found = re.search(r"(?:error|fatal)\s*:\s*(.*)", done.stdout + done.stderr)
    return found[1].strip() if found else "refused without a reason"


def assemble(forms: Iterable[str], workers: int = 2) -> None:
    """Ask ptxas about forms and write its refusals. UsageError if there is no ptxas."""
    try:
        version = subprocess.run(["ptxas", "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise UsageError(f"ptxas must be on the path, not missing ({error})") from None
    asked = list(forms)
    with ThreadPoolExecutor(workers) as pool:
        reasons = {form: reason for form, reason in zip(asked, pool.map(verdict, asked), strict=True) if reason}
    release = re.search(r"release ([\d.]+)", version)
    kept = {"ptxas": release[1] if release else "unknown", "asked": len(asked), "refused": dict(sorted(reasons.items()))}
    VERDICTS.write_text(json.dumps(kept, indent=0) + "\n")


@cache
def refusals() -> dict[str, str]:
    """Return the forms that ptxas refuses for sm_90a, with its reasons."""
    return json.loads(VERDICTS.read_text())["refused"]
