"""The same PTX on silicon: running it there, asking hardware questions, comparing bits and cycles with captures."""
