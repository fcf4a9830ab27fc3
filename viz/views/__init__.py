"""One view per file. Each has ``data(recording)``, pure: the columns that the browser draws from, and ``layout()``, the
empty elements that it draws into. ``viz/assets/<view>.js`` does the drawing, on every step, without asking the server.
"""
