"""Which instructions the simulator has: every form of the PTX ISA against the assembler, and the table in docs/coverage.md."""
