"""What a comparison found, for machines and for a browser: JSON, SARIF and HTML of one report."""

from parity.verifier.reports.report import Finding, Report, Table

__all__ = ["Finding", "Report", "Table"]
