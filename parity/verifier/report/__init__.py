"""Reports of comparisons for machines and browsers: JSON and HTML of one `Report`."""

from parity.verifier.report.report import Finding, Report, Table

__all__ = ["Finding", "Report", "Table"]
