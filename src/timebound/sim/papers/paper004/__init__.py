"""The evaluation in the paper on IndiQoS, repeated, with crankback beside its three ways to find paths."""
