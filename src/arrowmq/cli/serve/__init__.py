"""`arrowmq server`, `namesrv` and `broker`: run a node, or several processes of them, until told to stop."""
