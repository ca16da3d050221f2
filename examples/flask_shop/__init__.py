"""A shop with Flask and plain SQLAlchemy, with the usual task class that runs bodies in an application context."""
