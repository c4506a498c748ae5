"""A child that opens a .gguf file with llama.cpp and answers /tokenize on 127.0.0.1: MODEL -> address on stdout."""

from __future__ import annotations

import sys

import xllamacpp


def main() -> None:
    params = xllamacpp.CommonParams()
    params.model.path = sys.argv[1]
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx = 64
    params.n_parallel = 1
    params.cpuparams.n_threads = 1
    params.warmup = False
    params.verbosity = -1
    server = xllamacpp.Server(params)
    sys.stdout.write(f"\naddress {server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()  # ends with the parent


if __name__ == "__main__":
    main()
