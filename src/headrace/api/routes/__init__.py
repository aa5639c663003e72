"""One module per family of routes. Each says what comes in and what goes out; the work is done by the service."""
