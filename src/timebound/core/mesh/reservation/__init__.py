"""Reserved paths: bandwidth held on the links between a publisher's broker and its subscribers' brokers."""
