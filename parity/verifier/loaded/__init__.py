"""Whether a model holds the numbers of a file: was the checkpoint really loaded?"""

from parity.verifier.loaded.judge import judge
from parity.verifier.loaded.report import Finding, Report

__all__ = ["Finding", "Report", "judge"]
