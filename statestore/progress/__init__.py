"""How far running work is: files that it writes, and how people see them."""
