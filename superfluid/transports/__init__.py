"""How clients reach the daemon. Each transport turns bytes into requests of the one vocabulary, and back."""
