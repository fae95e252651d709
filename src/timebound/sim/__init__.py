"""The core under virtual time: scenarios, link layers and the papers' experiments."""
