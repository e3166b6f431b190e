"""Compiling is most of what these tests do, and their programs run for a moment: XLA is not to optimise them.

That leaves a third of the time. test_docs.py compiles some programs as users do.
"""

import os

#: The second one is for the CPU alone: fused operations by the older, simpler generator of their code.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false")
