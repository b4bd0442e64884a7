"""Omissions planted into models of other libraries, and models that were loaded rightly."""
