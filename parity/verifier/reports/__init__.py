"""Reports of comparisons for machines and browsers: JSON, SARIF and HTML of one `Report`."""

from parity.verifier.reports.report import Finding, Report, Table

__all__ = ["Finding", "Report", "Table"]
