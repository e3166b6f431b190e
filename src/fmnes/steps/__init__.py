"""The parts strategies are made of, one idea a file. A formula that two strategies need lives here, once."""
