"""The record: what is true for ever, in SQLite or PostgreSQL. The only importer of SQLAlchemy."""
