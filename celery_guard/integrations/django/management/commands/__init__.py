"""Django's commands: ``guard``."""
