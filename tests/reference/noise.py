"""Learning-rate adaptation on any update: a literal transcription, on covariances and with explicit loops.

Nomura, Akimoto, Ono 2023, equations (8) to (17), with σ² C as one matrix Σ. S is any root of Σ: S Sᵀ = Σ.
"""

import math

import numpy as np

ALPHA, BETA_M, BETA_SIGMA, GAMMA = 1.4, 0.1, 0.03, 0.1


class Rate:
    """One learning rate and its moving averages."""

    def __init__(self, n, beta) -> None:
        self.eta, self.beta = 1.0, beta
        self.E, self.V = [0.0] * n, 0.0

    def update(self, step) -> float:
        beta = self.beta
        for i in range(len(step)):
            self.E[i] = (1 - beta) * self.E[i] + beta * step[i]
        self.V = (1 - beta) * self.V + beta * sum(s**2 for s in step)
        E2 = sum(e**2 for e in self.E)
        snr = (E2 - beta / (2 - beta) * self.V) / (self.V - E2)
        clipped = min(max(snr / (ALPHA * self.eta) - 1, -1), 1)
        self.eta = min(1, self.eta * math.exp(min(GAMMA * self.eta, beta) * clipped))
        return self.eta


class Adaptation:
    def __init__(self, d) -> None:
        self.d = d
        self.m_rate, self.s_rate = Rate(d, BETA_M), Rate(d * d, BETA_SIGMA)

    def __call__(self, m, S, m_new, Sigma_new):
        """The mean and the covariance after the step that a strategy proposes."""
        d = self.d
        S_inverse = np.linalg.inv(S)
        before = self.m_rate.eta
        eta_m = self.m_rate.update(list(S_inverse @ (m_new - m)))
        K = S_inverse @ Sigma_new @ S_inverse.T - np.eye(d)
        eta_S = self.s_rate.update([K[i, j] / math.sqrt(2) for i in range(d) for j in range(d)])
        m = m + eta_m * (m_new - m)
        Sigma = S @ (np.eye(d) + eta_S * K) @ S.T
        return m, Sigma * (before / eta_m) ** 2
