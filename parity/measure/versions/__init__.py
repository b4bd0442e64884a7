"""What depends on the version of a library: one module for each library, nothing of it elsewhere.

Each names the versions in which its facts were seen. Of another version a command says so once, and
goes on where a wrong guess would be noticed.
"""
