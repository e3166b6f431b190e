"""Models of the objective and of its failures, from the evaluations so far.

Pure functions of their data: the same data give the same model, bit for bit.
"""
