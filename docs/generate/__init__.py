"""The parts of docs/reference that are made from the code: `make docs` writes them, a test compares them.

A page is written by hand, except between a comment `<!-- made by make docs: NAME -->` and the next `<!-- end -->`. Each
module here offers some of these blocks by name; `pages` puts them into their places.
"""
