"""The REST API: HTTP in front of the service, and nothing that the service could do itself."""
