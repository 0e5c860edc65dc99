"""Pure arrays: memory fit, throughput, latency and power of one replica."""
