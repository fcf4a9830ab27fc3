"""What it looked like: a browser view of a run, and the same view as one offline HTML file.

Everything drawn comes from the trace (:mod:`h100sim.trace`) and, where the recording carries it, from the shared memory
that a replay gives back for a step (:mod:`viz.replay`). The machine is not known here.
"""
