"""From a topic to those who want it: the topic index, retained messages, taps for journals."""
