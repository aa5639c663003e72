"""The fault machine: load on a whole cluster while it is broken on purpose, and a checker of what is left."""
