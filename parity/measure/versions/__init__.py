"""Facts that depend on a library's version: one module for each library, and none of them elsewhere.

Each module names the versions in which its facts were seen. With another version a command warns
once, and goes on where a wrong guess would be noticed.
"""
