"""xNES, after Glasmachers et al. (2010), in the notation of the FM-NES paper.

Transcribes Steps 2, 8 and 9 of Algorithm 1 there with the rank weights, Eqs. (6)-(7): no mirrored pairs, no
path, no phases. Infeasible values are +∞ and tie in the order of sampling.
"""

import math

import numpy as np

from .fm_nes import exp_symmetric, rank_weights


class XNES:
    """B0 is to have determinant 1 and is taken as it is."""

    def __init__(self, m, sigma, B0=None) -> None:
        self.m = np.array(m, dtype=float)
        self.sigma = float(sigma)
        self.d = len(self.m)
        self.B = np.eye(self.d) if B0 is None else np.array(B0, dtype=float)

    def points(self, z) -> np.ndarray:
        """Step 2, with z of shape (λ, d)."""
        return np.array([self.m + self.sigma * self.B @ z_i for z_i in z])

    def step(self, z, f) -> None:
        """Steps 8 and 9, with f of shape (λ,); non-finite is infeasible."""
        d, lam = self.d, len(f)
        I = np.eye(d)  # noqa: E741
        order = sorted(range(lam), key=lambda i: f[i] if math.isfinite(f[i]) else math.inf)
        z = np.asarray(z)[order]
        _, w, _ = rank_weights(lam)
        eta_m = 1
        eta_sigma = eta_B = 3 / 5 * (3 + math.log(d)) / (d * math.sqrt(d))

        # Step 8, Eq. (11)
        G_M = sum(w[i] * (np.outer(z[i], z[i]) - I) for i in range(lam))
        G_sigma = np.trace(G_M) / d
        G_B = G_M - G_sigma * I
        G_delta = sum(w[i] * z[i] for i in range(lam))

        # Step 9, Eqs. (12)-(14)
        self.m = self.m + eta_m * self.sigma * self.B @ G_delta
        self.sigma = float(self.sigma * math.exp(eta_sigma * G_sigma / 2))
        self.B = self.B @ exp_symmetric(eta_B * G_B / 2)
