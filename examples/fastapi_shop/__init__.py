"""A shop with FastAPI and SQLAlchemy's asyncio part: an order and the job that charges for it are one transaction."""
