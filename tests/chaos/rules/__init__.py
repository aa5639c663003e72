"""The rules of the checker, by idea: what handlers did, how executions ended, how states moved, what is left over."""
