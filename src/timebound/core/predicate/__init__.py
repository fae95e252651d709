"""Content filters: parse them, evaluate them, know their cost."""
