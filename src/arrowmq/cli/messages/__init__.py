"""`arrowmq message` and `arrowmq dead-letters`: find, show, send, resend and explain messages."""
