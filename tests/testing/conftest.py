"""The plugin's fixtures, also where the package is not installed and pytest does not find the plugin by itself."""

from arrowmq.testing.plugin import arrowmq_broker, arrowmq_settings

__all__ = ["arrowmq_broker", "arrowmq_settings"]
