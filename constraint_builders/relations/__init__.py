"""What must hold between tables: the equations A x = b of self-consistency, and their rank."""
