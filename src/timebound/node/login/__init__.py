"""Passwords: the file that holds them and the threads that check them."""
